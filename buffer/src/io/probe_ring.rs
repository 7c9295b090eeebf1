//! The load of one point of a probe, from tasks on a ring.
//!
//! Invariant: buffers outlive the runtime whose operations use them. So they are allocated outside
//! of it and lent to tasks by pointer.

use super::{
    file::{PageFile, whole_read, whole_write},
    probe_load::{Load, Samples, Schedule, scramble},
    runtime,
};
use crate::{
    page::{PAGE_SIZE, PageImage},
    random::SeededRandom,
};
use std::{cell::RefCell, io, rc::Rc, sync::Arc, time::Instant};
use tokio_uring::{
    buf::{IoBuf, IoBufMut},
    fs::File,
};

/// Runs the load with `depth` tasks on a ring of this thread.
pub(super) fn run_load(load: &Load, file: &Arc<PageFile>) -> io::Result<Samples> {
    let mut buffers = vec![PageImage([0; PAGE_SIZE]); load.depth].into_boxed_slice();
    let handle = Rc::new(File::from_std(file.duplicate()?));
    let samples = Rc::new(RefCell::new(Samples::new()));
    let schedule = load.schedule();
    let mut random = load.seed.mix(u64::MAX);
    buffers.iter_mut().for_each(|buffer| scramble(buffer, &mut random));
    let pointers: Vec<_> = buffers.iter_mut().map(|buffer| &raw mut *buffer).collect();
    let tasks = async {
        let tasks: Vec<_> = pointers
            .into_iter()
            .zip(0..)
            .map(|(pointer, number)| {
                let (load, handle, samples) = (load.clone(), handle.clone(), samples.clone());
                let random = load.seed.mix(number);
                tokio_uring::spawn(async move {
                    let buffer = Lent(pointer);
                    one_task(&load, &handle, buffer, random, schedule, &samples).await
                })
            })
            .collect();
        let mut result = Ok(());
        for task in tasks {
            result = result.and(task.await.map_err(io::Error::other).flatten());
        }
        result
    };
    runtime::start_runtime(load.depth as u32, tasks)??;
    drop(buffers);
    let mut samples = samples.replace(Samples::new());
    samples.measured = schedule.counts_from.elapsed();
    Ok(samples)
}

async fn one_task(
    load: &Load,
    handle: &File,
    mut buffer: Lent,
    mut random: SeededRandom,
    schedule: Schedule,
    samples: &RefCell<Samples>,
) -> io::Result<()> {
    let mut counted = false;
    loop {
        let start = Instant::now();
        if !load.goes_on(schedule, start, counted) {
            return Ok(());
        }
        let (is_read, page) = load.next(&mut random);
        let result;
        if is_read {
            (result, buffer) = handle.read_at(buffer, page.offset()).await;
            whole_read(page, result?)?;
        } else {
            (result, buffer) = handle.write_at(buffer, page.offset()).submit().await;
            whole_write(page, result?)?;
        }
        if start >= schedule.counts_from {
            samples.borrow_mut().record(is_read, start.elapsed());
            counted = true;
        }
    }
}

/// A buffer that [`run_load`] keeps until its runtime has ended.
struct Lent(*mut PageImage);

// SAFETY: the buffer stays in place until the runtime has ended; one task uses it, one operation at
// a time.
unsafe impl IoBuf for Lent {
    fn stable_ptr(&self) -> *const u8 {
        self.0.cast()
    }
    fn bytes_init(&self) -> usize {
        PAGE_SIZE
    }
    fn bytes_total(&self) -> usize {
        PAGE_SIZE
    }
}

// SAFETY: as above.
unsafe impl IoBufMut for Lent {
    fn stable_mut_ptr(&mut self) -> *mut u8 {
        self.0.cast()
    }
    unsafe fn set_init(&mut self, _pos: usize) {}
}
