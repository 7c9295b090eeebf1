//! Calls to the kernel about the calling thread.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

/// The shortest time slice that the kernel grants.
const SHORT_TURN: Duration = Duration::from_micros(100);

/// Processor time of the calling thread, in nanoseconds.
pub(crate) fn cpu_time_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes the one struct it is given.
    let done = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    if done == 0 { time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64 } else { 0 }
}

thread_local! {
    /// Whether the kernel wakes this thread in time.
    static IS_PUNCTUAL: Cell<bool> = const { Cell::new(false) };
}

/// Has the kernel wake this thread in time, without the delay of some 50 us that it adds by
/// default, for a simulated device.
pub(crate) fn be_punctual() {
    if !IS_PUNCTUAL.replace(true) {
        // SAFETY: takes numbers only. 1 ns is the least slack of timers.
        let failed = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
        if failed != 0 {
            let error = std::io::Error::last_os_error();
            tracing::debug!(%error, "sleeps of this thread are not exact");
        }
    }
}

/// Sleeps until a time, exactly.
pub(crate) fn sleep_until(time: Instant) {
    be_punctual();
    let left = time.saturating_duration_since(Instant::now());
    if !left.is_zero() {
        std::thread::sleep(left);
    }
}

/// Registers a function to be called in each forked child. It may only do what a signal handler may
/// do.
pub(crate) fn on_fork(in_child: extern "C" fn()) -> std::io::Result<()> {
    // SAFETY: the function lives for ever and follows the rule above.
    let failed = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    if failed == 0 { Ok(()) } else { Err(std::io::Error::from_raw_os_error(failed)) }
}

/// Asks the kernel for short time slices for the calling thread, which then also run sooner: for a
/// thread that mostly sleeps and that others wait for when it wakes. Does nothing on kernels
/// without this setting (Linux before 6.12), or under a scheduling policy other than the default.
pub fn ask_for_short_turns() {
    let Some(mut attr) = scheduling() else { return };
    if attr.sched_policy != libc::SCHED_OTHER as u32 {
        return;
    }
    attr.sched_runtime = SHORT_TURN.as_nanos() as u64;
    // SAFETY: reads the struct, which says its size.
    let set = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
    if set != 0 {
        let error = std::io::Error::last_os_error();
        tracing::debug!(%error, "no short time slices for this thread");
    }
}

/// The scheduling attributes of the calling thread.
fn scheduling() -> Option<libc::sched_attr> {
    // SAFETY: a struct of numbers, for which zero is a valid value.
    let mut attr: libc::sched_attr = unsafe { std::mem::zeroed() };
    let size = size_of::<libc::sched_attr>() as u32;
    // SAFETY: writes at most `size` bytes of the struct; thread 0 is the calling one.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, size, 0) };
    (got == 0).then_some(attr)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_asks_for_short_turns_gets_them_where_there_are_any_and_stays_as_it_was() {
        let thread = std::thread::spawn(|| {
            let before = scheduling();
            ask_for_short_turns();
            before.zip(scheduling())
        });
        let Some((before, after)) = thread.join().unwrap() else {
            return eprintln!("skipped: the kernel does not tell how threads are scheduled");
        };
        assert_eq!(
            (after.sched_policy, after.sched_nice),
            (before.sched_policy, before.sched_nice)
        );
        // A kernel that has the setting reports the length of the time slice.
        let turns = before.sched_runtime != 0 && before.sched_policy == libc::SCHED_OTHER as u32;
        let expected = if turns { SHORT_TURN.as_nanos() as u64 } else { before.sched_runtime };
        assert_eq!(after.sched_runtime, expected);
    }
}
