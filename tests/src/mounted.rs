//! Small file systems of their own, for tests of full and read-only devices. They need the rights
//! of root; where these are missing a test says so and passes.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// A file system in memory, mounted in a temporary directory until it is dropped.
pub struct Mounted {
    at: PathBuf,
    _directory: tempfile::TempDir,
}

impl Mounted {
    /// Mounts one of that size. None, with a message, where that is not allowed.
    ///
    /// # Panics
    /// If there is no temporary directory.
    pub fn new(bytes: u64) -> Option<Mounted> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let at = directory.path().join("fs");
        std::fs::create_dir(&at).expect("a directory");
        let size = format!("size={bytes}");
        if mount(&["-t", "tmpfs", "-o", &size, "tmpfs"], &at) {
            return Some(Mounted { at, _directory: directory });
        }
        eprintln!("skipped: a file system of {bytes} bytes cannot be mounted here");
        None
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.at
    }

    /// Makes it read-only, or writable again.
    ///
    /// # Panics
    /// If that fails.
    pub fn set_read_only(&self, read_only: bool) {
        let how = if read_only { "remount,ro" } else { "remount,rw" };
        assert!(mount(&["-o", how], &self.at), "{how}");
    }

    /// Leaves so much room free, by a file that takes the rest.
    ///
    /// # Panics
    /// If the file cannot be made.
    pub fn leave(&self, bytes: u64) {
        let filler = self.at.join("filler");
        let _ = std::fs::remove_file(&filler);
        let free = self.free();
        let file = std::fs::File::create(&filler).expect("a file");
        let rest = vec![1; free.saturating_sub(bytes) as usize];
        std::io::Write::write_all(&mut &file, &rest).expect("there is room");
    }

    /// Bytes that are free.
    ///
    /// # Panics
    /// If the system does not say.
    pub fn free(&self) -> u64 {
        let shown = Command::new("df").args(["-B1", "--output=avail"]).arg(&self.at).output();
        let shown = String::from_utf8(shown.expect("df").stdout).expect("digits");
        shown.split_whitespace().last().expect("a number").parse().expect("a number")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let ended = Command::new("umount").arg("-l").arg(&self.at).status();
        if !ended.is_ok_and(|status| status.success()) {
            eprintln!("{} stays mounted", self.at.display());
        }
    }
}

fn mount(arguments: &[&str], at: &Path) -> bool {
    let done = Command::new("mount").args(arguments).arg(at).output();
    done.is_ok_and(|output| output.status.success())
}
