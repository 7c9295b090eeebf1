//! Page values of WATT: recording an access, and computing the value of a page.

use criterion::Criterion;
use std::hint::black_box;
use wattle_buffer::replacement::{Tracker, Watt};
use wattle_workloads::rng::Rng;

/// Pages whose values are computed in turn, as an evictor does.
const PAGES: usize = 4096;

pub fn benches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("watt");
    let tracker = Tracker::default();
    group.bench_function("track, same epoch", |bencher| {
        bencher.iter(|| Watt::track(black_box(&tracker), black_box(17)));
    });
    let mut epoch = 0;
    group.bench_function("track, new epoch", |bencher| {
        bencher.iter(|| {
            epoch += 1;
            Watt::track(black_box(&tracker), epoch);
        });
    });
    let mut rng = Rng::new(1, 0);
    let pages: Vec<Tracker> = (0..PAGES)
        .map(|_| {
            let tracker = Tracker::default();
            let mut epoch = 1;
            for _ in 0..rng.below(12) {
                epoch += 1 + rng.below(9) as u32;
                Watt::track(&tracker, epoch);
            }
            tracker
        })
        .collect();
    let mut next = 0;
    group.bench_function("value", |bencher| {
        bencher.iter(|| {
            next = (next + 1) % PAGES;
            value(&pages[next], black_box(200))
        });
    });
    group.finish();
}

/// The value as evictors compute it on this processor.
fn value(tracker: &Tracker, epoch: u32) -> (f32, f32) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { Watt::values_avx2(tracker, epoch) };
    }
    Watt::values_scalar(tracker, epoch)
}
