//! The `wattle` binary.

#![forbid(unsafe_code)]

use std::io::{IsTerminal, stderr};
use std::process::ExitCode;
use std::sync::{Arc, atomic::AtomicBool};

use mimalloc::MiMalloc;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::{layer::SubscriberExt, util::SubscriberInitExt};
use wattle_workloads::driver::control::say;

/// Workers, log, janitor and evictors allocate and free in parallel, and often one thread frees
/// what another one has allocated. `benches/README.md` has the cost of the system's allocator.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    // Warnings of the engine go to standard error; RUST_LOG asks for more or less, as
    // "wattle=debug,info".
    let asked = std::env::var("RUST_LOG").unwrap_or_else(|_| "warn".to_string());
    let filter = asked.parse().unwrap_or_else(|error| {
        say(format_args!("warning: RUST_LOG={asked} is not understood: {error}"));
        Targets::new().with_default(LevelFilter::WARN)
    });
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(stderr)
        .with_ansi(stderr().is_terminal())
        // Otherwise a thread that logs would panic if standard error cannot be written.
        .log_internal_errors(false)
        .without_time();
    tracing_subscriber::registry().with(filter).with(lines).init();
    // A file that reaches the size limit of the process must be reported, not end the process.
    let reached = Arc::new(AtomicBool::new(false));
    if let Err(error) = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, reached) {
        say(format_args!(
            "warning: a file that reaches the limit of the process will end it: {error}"
        ));
    }
    wattle_workloads::cli::main(std::env::args_os())
}
