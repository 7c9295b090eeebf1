//! The `wattle` binary.

#![forbid(unsafe_code)]

use std::io::{IsTerminal, stderr};
use std::process::ExitCode;

use mimalloc::MiMalloc;
use tracing_subscriber::EnvFilter;

/// Workers, log, janitor and evictors allocate and free side by side, and what one of them has allocated is
/// often for another one to free. See `benches/README.md` for what that costs with the allocator of the
/// system.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    // Warnings of the engine go to standard error; RUST_LOG asks for more or less.
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(stderr)
        .with_ansi(stderr().is_terminal())
        .without_time()
        .init();
    wattle_workloads::cli::main(std::env::args_os())
}
