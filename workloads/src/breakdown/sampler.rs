//! The sampler: `SIGPROF` at each clock tick of a running thread, and a handler that stores where
//! the thread is. The one file of this crate meant for `unsafe`.
//!
//! The handler is safe in a signal: it makes one system call, `gettid`, and otherwise only loads
//! and stores atomics of memory that exists before the timer starts. It takes no lock, allocates
//! nothing, does not unwind and leaves `errno` alone.
//!
//! A sample has the program counter and a few words of the stack that may be return addresses,
//! innermost first. They are needed where the program counter is in a helper, such as `memcpy`.
//! They come from a scan of the stack, not from unwinding, which is not safe in a signal. So they
//! may include old addresses; `symbols` drops those that no call instruction precedes.
//!
//! The timer is `ITIMER_PROF`, which counts the processor time of the process. The kernel checks it
//! at the clock ticks of the thread that runs, and interrupts that thread. So each running thread
//! gets a sample for each of its ticks, 100 to 1000 a second; an interval below a tick asks for
//! that. A thread in a system call gets the sample when the call ends, at the call.

#![allow(unsafe_code, reason = "a signal handler reads registers and the stack")]

use std::io;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Return addresses that a sample has at most.
pub const CALLERS: usize = 12;

/// Samples that are kept; later ones are only counted. Half an hour on one core at 250 a second.
const CAPACITY: usize = 1 << 19;

/// Words of the stack that are looked at, 1 KiB. They exist: the C library keeps the descriptor of
/// a thread, more than 2 KiB, above its stack, and the main thread has its environment there.
const SCANNED: usize = 128;

/// Time between two expiries of the timer, in microseconds: below any clock tick.
const INTERVAL_US: i64 = 500;

/// Signals that [`cost`] raises in one batch, and batches.
const BATCH: u32 = 100;
const BATCHES: usize = 30;

#[derive(Default)]
struct Slot {
    thread: AtomicU32,
    at: AtomicU64,
    callers: [AtomicU64; CALLERS],
}

/// Where a thread was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Id of the thread.
    pub thread: u32,
    /// Program counter.
    pub at: u64,
    /// Words of the stack that may be return addresses into the program, innermost first.
    pub callers: Vec<u64>,
}

static SLOTS: OnceLock<Box<[Slot]>> = OnceLock::new();
static TAKEN: AtomicUsize = AtomicUsize::new(0);
static ARMED: AtomicBool = AtomicBool::new(false);
static CODE_START: AtomicU64 = AtomicU64::new(0);
static CODE_END: AtomicU64 = AtomicU64::new(0);

/// Registers of the interrupted thread: program counter and stack pointer.
#[cfg(target_arch = "x86_64")]
fn registers(context: &libc::ucontext_t) -> (u64, u64) {
    let registers = &context.uc_mcontext.gregs;
    (registers[libc::REG_RIP as usize] as u64, registers[libc::REG_RSP as usize] as u64)
}

/// Registers of the interrupted thread: program counter and stack pointer.
#[cfg(target_arch = "aarch64")]
fn registers(context: &libc::ucontext_t) -> (u64, u64) {
    (context.uc_mcontext.pc, context.uc_mcontext.sp)
}

extern "C" fn take_sample(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    if !ARMED.load(Ordering::Acquire) {
        return;
    }
    let Some(slots) = SLOTS.get() else { return };
    let Some(slot) = slots.get(TAKEN.fetch_add(1, Ordering::Relaxed)) else { return };
    // SAFETY: the kernel passes the context of the interrupted thread to a handler that was
    // installed with SA_SIGINFO.
    let context = unsafe { &*context.cast::<libc::ucontext_t>() };
    let (at, stack) = registers(context);
    let code = CODE_START.load(Ordering::Relaxed)..CODE_END.load(Ordering::Relaxed);
    let mut found = 0;
    for word in 0..SCANNED {
        let address = (stack & !7) as usize + word * size_of::<u64>();
        // SAFETY: aligned, and on the stack of this thread or in the descriptor above it, see
        // `SCANNED`. Nothing else changes it while the handler runs.
        let value = unsafe { std::ptr::read_volatile(address as *const u64) };
        if code.contains(&value) {
            slot.callers[found].store(value, Ordering::Relaxed);
            found += 1;
            if found == CALLERS {
                break;
            }
        }
    }
    for rest in &slot.callers[found..] {
        rest.store(0, Ordering::Relaxed);
    }
    // SAFETY: without arguments; it cannot fail.
    let thread = unsafe { libc::syscall(libc::SYS_gettid) };
    slot.at.store(at, Ordering::Relaxed);
    // Partner: the acquire in `stop`. A slot with a thread is whole.
    slot.thread.store(thread as u32, Ordering::Release);
}

/// Installs the handler. It stays, because a signal that is pending when the timer stops would end
/// the process otherwise.
fn install() -> io::Result<()> {
    // SAFETY: all-zero bytes are a valid `sigaction`: no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = take_sample as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
    // SAFETY: `action` is valid and lives through the call; the handler is safe in a signal.
    match unsafe { libc::sigaction(libc::SIGPROF, &action, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn set_timer(interval_us: i64) -> io::Result<()> {
    let interval = libc::timeval { tv_sec: 0, tv_usec: interval_us };
    let timer = libc::itimerval { it_interval: interval, it_value: interval };
    // SAFETY: `timer` is valid and lives through the call.
    match unsafe { libc::setitimer(libc::ITIMER_PROF, &timer, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Prepares the memory and the handler. `code` are the addresses of the program's code.
///
/// # Errors
/// Those of the system call.
pub fn prepare(code: Range<u64>) -> io::Result<()> {
    SLOTS.get_or_init(|| (0..CAPACITY).map(|_| Slot::default()).collect());
    CODE_START.store(code.start, Ordering::Relaxed);
    CODE_END.store(code.end, Ordering::Relaxed);
    install()
}

/// Starts sampling. One profile at a time.
///
/// # Errors
/// Those of the system call.
pub fn start() -> io::Result<()> {
    let slots = SLOTS.get().map_or(&[][..], |slots| slots);
    for slot in &slots[..TAKEN.load(Ordering::Relaxed).min(slots.len())] {
        slot.thread.store(0, Ordering::Relaxed);
    }
    TAKEN.store(0, Ordering::Relaxed);
    ARMED.store(true, Ordering::Release);
    set_timer(INTERVAL_US)
}

/// Stops sampling. Returns the samples, and the number of those that did not fit.
///
/// # Errors
/// Those of the system call.
pub fn stop() -> io::Result<(Vec<Place>, usize)> {
    set_timer(0)?;
    ARMED.store(false, Ordering::Release);
    let slots = SLOTS.get().map_or(&[][..], |slots| slots);
    let taken = TAKEN.load(Ordering::Relaxed);
    let kept = taken.min(slots.len());
    let place = |slot: &Slot| {
        let thread = slot.thread.load(Ordering::Acquire);
        let callers = slot.callers.iter().map(|word| word.load(Ordering::Relaxed));
        let callers = callers.take_while(|word| *word != 0).collect();
        // A handler that has not ended yet has set no thread.
        (thread != 0).then(|| Place { thread, at: slot.at.load(Ordering::Relaxed), callers })
    };
    Ok((slots[..kept].iter().filter_map(place).collect(), taken - kept))
}

/// Time that one sample costs: delivery, handler and return of a signal, measured on the calling
/// thread. The least of several batches, because other threads may interrupt it. Only while no
/// profile runs.
pub fn cost() -> Duration {
    TAKEN.store(0, Ordering::Relaxed);
    ARMED.store(true, Ordering::Release);
    let batch = || {
        let began = Instant::now();
        for _ in 0..BATCH {
            // SAFETY: raises a signal that has a handler, see `prepare`.
            unsafe { libc::raise(libc::SIGPROF) };
        }
        began.elapsed() / BATCH
    };
    let least = (0..BATCHES).map(|_| batch()).min().unwrap_or_default();
    ARMED.store(false, Ordering::Release);
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn spin(until: Duration) -> u64 {
        let (began, mut sum) = (Instant::now(), 0u64);
        while began.elapsed() < until {
            sum = (0..1000).fold(sum, |sum, i| std::hint::black_box(sum ^ i));
        }
        sum
    }

    #[test]
    fn a_thread_that_works_is_sampled_and_one_that_sleeps_is_not() {
        let here = spin as *const () as u64;
        prepare(here.saturating_sub(64 << 20)..here + (64 << 20)).unwrap();
        start().unwrap();
        let sleeper = std::thread::spawn(|| {
            std::thread::sleep(Duration::from_millis(300));
            rustix::thread::gettid().as_raw_nonzero().get() as u32
        });
        let worker = std::thread::spawn(|| {
            // As much processor time as gives some samples, however busy the machine is.
            let began = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
            let used = || {
                let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
                (now.tv_sec - began.tv_sec) * 1000 + (now.tv_nsec - began.tv_nsec) / 1_000_000
            };
            while used() < 300 {
                std::hint::black_box(spin(Duration::from_millis(5)));
            }
            rustix::thread::gettid().as_raw_nonzero().get() as u32
        });
        let (worker, sleeper) = (worker.join().unwrap(), sleeper.join().unwrap());
        let (places, lost) = stop().unwrap();
        let of = |thread| places.iter().filter(|place| place.thread == thread).count();
        assert!(of(worker) >= 15, "{} samples in 300 ms", of(worker));
        assert!(of(sleeper) <= 2, "{} samples of a thread that slept", of(sleeper));
        assert_eq!(lost, 0);
        assert!(places.iter().any(|place| !place.callers.is_empty()));
        assert!(cost() < Duration::from_millis(1));
    }
}
