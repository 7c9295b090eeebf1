//! Calls to the kernel about the calling thread.

use std::{cell::Cell, time::Instant};

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
