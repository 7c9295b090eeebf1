//! The `wattle` binary.

#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::process::ExitCode;

use wattle_workloads::cli;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    match cli::parse(&arguments) {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(_)) => cli::exit::Exit::Failed("the engine is not linked yet".to_owned()).report(),
        Err(exit) => exit.report(),
    }
}
