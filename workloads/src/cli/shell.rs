//! `wattle completions` and `wattle man`: files for the shell and for `man`.

use std::path::PathBuf;

use clap::{Args, Command};
use clap_complete::Shell;

use super::exit::{Exit, failed, print};

/// Flags of `completions`.
#[derive(Args, Debug)]
#[command(after_help = "For bash: wattle completions bash > \
    ~/.local/share/bash-completion/completions/wattle")]
pub struct CompletionsFlags {
    /// The shell.
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Flags of `man`.
#[derive(Args, Debug)]
pub struct ManFlags {
    /// Directory for the pages, created if absent: wattle.1, wattle-ycsb.1 and so on. View one with
    /// man -l.
    pub directory: PathBuf,
}

/// Prints the script of a shell.
pub fn completions(flags: &CompletionsFlags, mut command: Command) -> Result<(), Exit> {
    let mut script = Vec::new();
    clap_complete::generate(flags.shell, &mut command, "wattle", &mut script);
    print(&String::from_utf8_lossy(&script))
}

/// Writes the manual pages.
pub fn man(flags: &ManFlags, command: Command) -> Result<(), Exit> {
    let directory = flags.directory.display();
    std::fs::create_dir_all(&flags.directory).map_err(failed(format!("making {directory}")))?;
    clap_mangen::generate_to(command, &flags.directory)
        .map_err(failed(format!("writing the pages into {directory}")))
}
