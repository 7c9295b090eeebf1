//! How a subcommand ends without success.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::adapter::backend;
use crate::driver::backend::OpenError;
use crate::driver::control::{INTERRUPTED, say};

/// Why a subcommand ends.
#[derive(Debug, PartialEq, Eq)]
pub enum Exit {
    /// The arguments, or the files that they name, are wrong; nothing was changed. Exit code 2.
    Usage(String),
    /// The work failed. Exit code 1.
    Failed(String),
    /// The work was done, and its output has the errors. Exit code 1.
    Reported,
    /// The user interrupted the work; its results so far were printed. Exit code 130.
    Interrupted(String),
}

impl Exit {
    /// Prints the sentence and returns the code.
    pub fn report(self) -> ExitCode {
        match self {
            Exit::Usage(sentence) => {
                say(format_args!("error: {sentence}"));
                ExitCode::from(2)
            }
            Exit::Failed(sentence) => {
                say(format_args!("error: {sentence}"));
                ExitCode::from(1)
            }
            Exit::Reported => ExitCode::from(1),
            Exit::Interrupted(sentence) => {
                say(sentence);
                ExitCode::from(INTERRUPTED)
            }
        }
    }
}

/// A failure while `doing` something.
pub fn failed<E: std::fmt::Display>(doing: impl std::fmt::Display) -> impl FnOnce(E) -> Exit {
    move |error| Exit::Failed(format!("{doing}: {error}"))
}

/// Like [`failed`], for work that the user may interrupt.
pub fn ended(doing: &str) -> impl FnOnce(wattle::Error) -> Exit {
    move |error| match error {
        wattle::Error::Interrupted => Exit::Interrupted(format!("interrupted while {doing}")),
        error => failed(doing)(error),
    }
}

/// Prints a result on standard output. A reader that closes the pipe early, such as `head`, is no
/// failure: the command ends as if it had read everything. Any other error gives exit code 1.
pub fn print(text: &str) -> Result<(), Exit> {
    print_to(&mut std::io::stdout().lock(), text)
}

/// Like [`print`], on `out`.
pub fn print_to(out: &mut dyn Write, text: &str) -> Result<(), Exit> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        printed => printed.map_err(failed("writing the result")),
    }
}

/// Why the engine did not open a store.
pub fn not_opened(error: wattle::Error) -> Exit {
    backend::not_opened(error).into()
}

impl From<OpenError> for Exit {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Refused(sentence) => Exit::Usage(sentence),
            OpenError::Failed(sentence) => Exit::Failed(sentence),
            OpenError::Interrupted(sentence) => Exit::Interrupted(sentence),
        }
    }
}

/// An error of clap as one sentence, with the names that it suggests.
pub fn sentence(error: &clap::Error) -> String {
    let text = error.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let end = ["\n\nUsage:", "\n\nFor more information", "\n\n  tip:"]
        .iter()
        .filter_map(|mark| text.find(mark))
        .min()
        .unwrap_or(text.len());
    let parts = text[..end].lines().map(str::trim).filter(|line| !line.is_empty());
    let sentence = parts.collect::<Vec<_>>().join(" ");
    let sentence = match suggestions(error) {
        Some(names) => format!("{sentence}; did you mean {names}?"),
        None => sentence,
    };
    match error.kind() {
        ErrorKind::UnknownArgument => {
            format!("{sentence}; --help lists the flags that are accepted")
        }
        ErrorKind::InvalidSubcommand => {
            format!("{sentence}; --help lists the subcommands that are accepted")
        }
        _ => sentence,
    }
}

/// The names that clap found similar to a wrong one.
fn suggestions(error: &clap::Error) -> Option<String> {
    let kinds =
        [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedValue];
    kinds.iter().find_map(|kind| match error.get(*kind)? {
        ContextValue::String(name) => Some(name.clone()),
        ContextValue::Strings(names) if !names.is_empty() => Some(names.join(" or ")),
        _ => None,
    })
}
