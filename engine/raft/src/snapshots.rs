//! The snapshots of a node: files in a directory of its own.
//!
//! A file is written under a name that ends in `.part`, synced, renamed to a name that ends in
//! `.snapshot`, and then the directory is synced. Only then are older files removed. So after a
//! crash the directory has the previous snapshot, the new one, or both, and perhaps a part. Parts
//! are removed when the directory is opened, and all snapshots but the newest: the one with the
//! newest entry, and of these the one with the highest number in its name.

use crate::{
    codec::{Failure, Id, Meta, decode},
    file::Part,
    format::Reader,
};
use openraft::{AnyError, RaftTypeConfig, StorageIOError};
use std::{
    ffi::OsStr,
    fs::{self, File, OpenOptions},
    io,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

const SNAPSHOT: &str = "snapshot";
const PART: &str = "part";

/// A complete, durable snapshot.
pub struct Kept<C: RaftTypeConfig> {
    pub meta: Meta<C>,
    path: PathBuf,
}

struct State<C: RaftTypeConfig> {
    current: Option<Kept<C>>,
    /// The next number for a name.
    next: u64,
}

/// The directory of a node's snapshots.
pub struct Snapshots<C: RaftTypeConfig> {
    directory: PathBuf,
    state: Mutex<State<C>>,
}

/// Adds the path to an error.
fn at(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("snapshot {}: {error}", path.display()))
}

/// An error of the snapshots for openraft.
pub fn failed<C: RaftTypeConfig>(error: io::Error) -> Failure<C> {
    StorageIOError::write_snapshot(None, AnyError::new(&error)).into()
}

fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path).and_then(|directory| directory.sync_all()).map_err(|error| at(path, error))
}

impl<C: RaftTypeConfig> Snapshots<C> {
    /// Opens the directory, which is created if it is absent: its parent must exist.
    pub fn open(directory: &Path) -> Result<Self, Failure<C>> {
        let directory = &Self::prepare(directory).map_err(failed::<C>)?;
        let (mut files, mut next) = (Vec::new(), 0);
        let entries = fs::read_dir(directory).map_err(|error| failed::<C>(at(directory, error)))?;
        for entry in entries {
            let path = entry.map_err(failed::<C>)?.path();
            let number =
                path.file_stem().and_then(OsStr::to_str).and_then(|stem| stem.parse().ok());
            let Some(number): Option<u64> = number else { continue };
            next = next.max(number + 1);
            match path.extension().and_then(OsStr::to_str) {
                Some(PART) => Self::remove(&path).map_err(failed::<C>)?,
                Some(SNAPSHOT) => {
                    let read = File::open(&path).and_then(Reader::new);
                    let (bytes, _) = read.map_err(|error| failed::<C>(at(&path, error)))?;
                    let meta: Meta<C> = decode(&bytes)?;
                    files.push((number, Kept { meta, path }));
                }
                _ => {}
            }
        }
        files.sort_by(|a, b| (&a.1.meta.last_log_id, a.0).cmp(&(&b.1.meta.last_log_id, b.0)));
        let current = files.pop().map(|(_, kept)| kept);
        for (_, older) in files {
            Self::remove(&older.path).map_err(failed::<C>)?;
        }
        let state = Mutex::new(State { current, next });
        Ok(Snapshots { directory: directory.to_path_buf(), state })
    }

    /// Creates the directory durably, and gives its absolute path.
    fn prepare(directory: &Path) -> io::Result<PathBuf> {
        match fs::create_dir(directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(at(directory, error));
            }
            _ => {}
        }
        let directory = directory.canonicalize().map_err(|error| at(directory, error))?;
        directory.parent().map_or(Ok(()), sync_directory)?;
        Ok(directory)
    }

    fn remove(path: &Path) -> io::Result<()> {
        fs::remove_file(path).map_err(|error| at(path, error))
    }

    fn state(&self) -> MutexGuard<'_, State<C>> {
        // No step panics between two changes of the state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn name(&self, state: &mut State<C>, extension: &str) -> PathBuf {
        state.next += 1;
        self.directory.join(format!("{:020}.{extension}", state.next - 1))
    }

    /// A new file under a temporary name.
    pub fn part(&self) -> io::Result<(File, Part)> {
        let path = self.name(&mut self.state(), PART);
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
        Ok((file.map_err(|error| at(&path, error))?, Part::new(path)))
    }

    /// Whether a part lies in this directory.
    pub fn owns(&self, part: &Part) -> bool {
        part.path().and_then(Path::parent) == Some(&self.directory)
    }

    /// Makes a part, which is complete and synced, the snapshot of the node, and removes the
    /// previous one. False when there is a newer one, which stays.
    pub fn publish(&self, mut part: Part, meta: Meta<C>) -> io::Result<bool> {
        let mut state = self.state();
        if state.current.as_ref().is_some_and(|kept| kept.meta.last_log_id > meta.last_log_id) {
            return Ok(false);
        }
        let path = self.name(&mut state, SNAPSHOT);
        part.rename(&path).map_err(|error| at(&path, error))?;
        sync_directory(&self.directory)?;
        match state.current.replace(Kept { meta, path }) {
            Some(older) => Self::remove(&older.path).map(|()| true),
            None => Ok(true),
        }
    }

    /// The newest entry of the snapshot.
    pub fn last(&self) -> Option<Id<C>> {
        self.state().current.as_ref().and_then(|kept| kept.meta.last_log_id.clone())
    }

    /// The snapshot, opened for reading.
    pub fn current(&self) -> io::Result<Option<(Meta<C>, File)>> {
        // Under the lock: a newer one removes the name.
        let state = self.state();
        let Some(kept) = &state.current else { return Ok(None) };
        let file = File::open(&kept.path).map_err(|error| at(&kept.path, error))?;
        Ok(Some((kept.meta.clone(), file)))
    }
}
