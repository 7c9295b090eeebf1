//! One run of this binary as a process of its own, which prints a JSON report.

use std::fs::File;
use std::io::{self, Read, Seek};
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

/// Runs this binary, with its outputs in unnamed files of `folder`: a run that outlives its
/// experiment writes into its own files, never into those of a later run.
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
        let folder = self.folder.display();
        let create = || {
            tempfile::tempfile_in(self.folder)
                .map_err(failed(format_args!("creating a file for outputs in {folder}")))
        };
        let (mut out, mut messages) = (create()?, create()?);
        let for_child = |file: &File| {
            file.try_clone().map_err(failed(format_args!("giving outputs to wattle {line}")))
        };
        let began = Instant::now();
        let child = Command::new(&self.program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(for_child(&out)?)
            .stderr(for_child(&messages)?)
            .spawn()
            .map_err(failed(format_args!("starting wattle {line}")))?;
        let status = self.wait(child)?;
        if self.interrupt.requested() {
            return Err(Exit::Interrupted(String::new()));
        }
        let seconds = began.elapsed().as_secs_f64();
        if !status.success() {
            let messages = whole(&mut messages)
                .map_err(failed(format_args!("reading the messages of wattle {line}")))?;
            let last = messages.trim_end().lines().last().unwrap_or("without a message");
            return Err(Exit::Failed(format!("wattle {line}: {status}: {last}")));
        }
        let reading = format!("reading the result of wattle {line}");
        let text = whole(&mut out).map_err(failed(&reading))?;
        let report = serde_json::from_str(&text).map_err(failed(&reading))?;
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

/// The text of a file from its beginning.
fn whole(file: &mut File) -> io::Result<String> {
    file.rewind()?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run that goes on after its experiment was killed ends while a later one runs.
    #[test]
    fn two_runs_at_once_do_not_mix_their_outputs() {
        let folder = tempfile::tempdir().unwrap();
        let interrupt = Interrupt::default();
        let begun = folder.path().join("begun");
        let script = |text: &str| {
            let text = text.replace("DIR", folder.path().to_str().unwrap());
            [
                "-c".to_owned(),
                format!("await() {{ until [ -e $1 ]; do sleep 0.01; done; }}; {text}"),
            ]
        };
        let (earlier, later) = (
            script(r#"printf '{"run":'; touch DIR/begun; await DIR/go; echo 1}; touch DIR/ended"#),
            script(r#"echo '{"run":2}'; touch DIR/go; await DIR/ended"#),
        );
        let run = |arguments: &[String]| {
            let program = PathBuf::from("/bin/sh");
            let runner = Runner { program, folder: folder.path(), interrupt: &interrupt };
            runner.run(arguments).map_err(|exit| format!("{exit:?}")).unwrap().report["run"].clone()
        };
        std::thread::scope(|scope| {
            let first = scope.spawn(|| run(&earlier));
            while !begun.exists() {
                std::thread::sleep(LOOK);
            }
            assert_eq!(run(&later), 2);
            assert_eq!(first.join().unwrap(), 1);
        });
    }
}
