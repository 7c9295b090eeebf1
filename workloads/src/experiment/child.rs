//! One run of this binary as a process of its own, which prints a JSON report.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::cli::exit::{Exit, failed};
use crate::driver::control::Interrupt;

/// If an experiment is killed, its run goes on to its own end and keeps the store open. The next
/// experiment waits for it, so long at most.
const ORPHAN: Duration = Duration::from_secs(120);
/// A part of the message of a run that finds its store open.
const OPEN: &str = "is open already";

/// Time between two looks at a running process.
const LOOK: Duration = Duration::from_millis(10);

/// Runs this binary, with its outputs in files of `folder`.
pub struct Runner<'a> {
    /// The binary.
    program: PathBuf,
    folder: &'a Path,
    interrupt: &'a Interrupt,
}

/// The result of a run.
pub struct Finished {
    /// Its JSON report.
    pub report: Value,
    /// How long the process ran.
    pub seconds: f64,
}

impl<'a> Runner<'a> {
    /// To run the binary of this process.
    pub fn of_this_binary(folder: &'a Path, interrupt: &'a Interrupt) -> Result<Self, Exit> {
        let program = std::env::current_exe().map_err(failed("looking for this binary"))?;
        Ok(Self { program, folder, interrupt })
    }

    /// Runs the binary with `arguments`, which must ask for JSON, and waits for it.
    ///
    /// # Errors
    /// [`Exit::Failed`] with the message of the run if it failed, [`Exit::Interrupted`] if the user
    /// interrupted it.
    pub fn run(&self, arguments: &[String]) -> Result<Finished, Exit> {
        let until = Instant::now() + ORPHAN;
        loop {
            match self.run_once(arguments) {
                Err(Exit::Failed(why))
                    if why.contains(OPEN)
                        && Instant::now() < until
                        && !self.interrupt.requested() =>
                {
                    std::thread::sleep(LOOK);
                }
                result => return result,
            }
        }
    }

    fn run_once(&self, arguments: &[String]) -> Result<Finished, Exit> {
        let line = arguments.join(" ");
        let outputs = ["stdout", "stderr"].map(|name| self.folder.join(name));
        let create = |path: &PathBuf| {
            File::create(path).map_err(failed(format_args!("creating {}", path.display())))
        };
        let (out, messages) = (create(&outputs[0])?, create(&outputs[1])?);
        let began = Instant::now();
        let child = Command::new(&self.program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(messages)
            .spawn()
            .map_err(failed(format_args!("starting wattle {line}")))?;
        let status = self.wait(child)?;
        if self.interrupt.requested() {
            return Err(Exit::Interrupted(String::new()));
        }
        let seconds = began.elapsed().as_secs_f64();
        let read = |path: &PathBuf| fs::read_to_string(path).unwrap_or_default();
        if !status.success() {
            let messages = read(&outputs[1]);
            let last = messages.trim_end().lines().last().unwrap_or("without a message");
            return Err(Exit::Failed(format!("wattle {line}: {status}: {last}")));
        }
        let report = serde_json::from_str(&read(&outputs[0]))
            .map_err(failed(format_args!("reading the result of wattle {line}")))?;
        for path in outputs {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(failed(format_args!("removing {}", path.display()))(error));
                }
                _ => {}
            }
        }
        Ok(Finished { report, seconds })
    }

    /// Waits for the end of `child`. If the user interrupts this process, so is the child, which
    /// may have got the signal already.
    fn wait(&self, mut child: Child) -> Result<ExitStatus, Exit> {
        let mut told = false;
        loop {
            if let Some(status) = child.try_wait().map_err(failed("waiting for a run"))? {
                return Ok(status);
            }
            if self.interrupt.requested() && !told {
                told = true;
                // An error means that it has just ended, which the next look finds.
                let _ended = kill_process(Pid::from_child(&child), Signal::INT).is_err();
            }
            std::thread::sleep(LOOK);
        }
    }
}
