//! The open directory of a store, its locks, its log, and the check that all files are still in
//! place.
//!
//! All access goes through descriptors that are opened here ([`Directory`]). If the path of the
//! store is renamed or replaced, no other directory is changed: another store at that path is not
//! touched. In return `close` tells the owner that the store has moved ([`Files::displaced`]), and
//! no superblock is written while pages or log are missing
//! ([`StoreFile::check_files`](crate::store::StoreFile::check_files)).
//!
//! Two locks exclude other processes: one of the data file and one of the directory of the log,
//! because a new data file can be put beside a log that is in use. Both end when the store closes,
//! although a copy of a descriptor may live longer: a process that another thread starts has copies
//! for a short time. Read-only openings share the locks ([`Files::open_read_only`]), and create,
//! write and sync nothing.

use parking_lot::Mutex;
use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::Arc,
};
use wattle_buffer::{
    Error, PAGE_SIZE, Result,
    io::{
        self, DEVICE_FILE, Directory, IoKind, LogStorage, Place, Storage, look_at, open_log_in,
        open_log_read_only_in, unlock,
    },
};

/// Name of the data file in the directory of a store.
pub const DATA_FILE: &str = "data";
/// Name of the directory of the log in the directory of a store.
pub const LOG_DIRECTORY: &str = "log";
/// Name of the list of pages for a warm start, in the directory of a store.
pub const WARM_FILE: &str = "warm";
/// The list before it is renamed.
pub(crate) const NEW_WARM_FILE: &str = "warm.new";
/// Files of a store that say nothing about its contents.
const HINTS: [&str; 3] = [WARM_FILE, NEW_WARM_FILE, DEVICE_FILE];
/// Bytes that any store has at least.
const WHOLE_PAGE: u64 = PAGE_SIZE as u64;
/// A directory that file systems have at their root, and that does not belong to a store.
const LOST_AND_FOUND: &str = "lost+found";

/// The open files of a store, besides its pages.
pub(crate) struct Files {
    /// The directory of the store.
    pub directory: Arc<Directory>,
    io: IoKind,
    /// The data file, for its lock.
    data: File,
    log: Mutex<Option<OpenLog>>,
    released: Mutex<bool>,
    read_only: bool,
}

/// A directory that is not where it was opened.
pub(crate) struct Displaced {
    path: PathBuf,
    /// Where it is; nowhere if it was removed.
    now: Option<PathBuf>,
}

impl Displaced {
    /// A sentence about the directory, given the outcome of the work in it.
    pub fn explain(&self, outcome: &Result<()>) -> String {
        let path = self.path.display();
        match (&self.now, outcome) {
            (None, _) => format!("{path} was removed, and everything in it is lost"),
            (Some(now), Ok(())) => {
                format!("{path} was moved to {}, where everything was written", now.display())
            }
            (Some(now), Err(error)) => {
                format!("{path} was moved to {}, and there: {error}", now.display())
            }
        }
    }
}

struct OpenLog {
    directory: Arc<Directory>,
    storage: Arc<dyn LogStorage>,
}

impl Files {
    /// Opens or creates the directory and the data file, and locks it. Of a path that does not
    /// exist only the last part is made.
    pub fn open(path: &Path, io: IoKind, create: bool) -> Result<(Files, Arc<dyn Storage>)> {
        let not_a_store = |why: String| Error::NotAStore { path: path.to_path_buf(), why };
        let failed =
            |what: &str, error| Error::io(format_args!("{what} {}", path.display()), error);
        let directory = Arc::new(open_directory(path, create)?);
        let found = directory.find(DATA_FILE).map_err(|error| failed("look into", error))?;
        match found {
            Some(found) if found.is_file() => {}
            Some(found) => {
                let kind = found.kind();
                return Err(not_a_store(format!("its data file is {kind}, not a regular file")));
            }
            None => check_empty(path, &directory, create)?,
        }
        let data_path = directory.path_of(DATA_FILE);
        let data = match create {
            true => directory.open_or_create_file(DATA_FILE),
            false => directory.open_file(DATA_FILE),
        };
        let opening = |error| Error::io(format_args!("open {}", data_path.display()), error);
        let data = data.map_err(opening)?;
        match io::try_lock(&data) {
            Ok(true) => {}
            Ok(false) => return Err(Error::AlreadyOpen { path: path.to_path_buf() }),
            Err(error) => return Err(failed("lock", error)),
        }
        let files = Files::new(directory, io, data, false);
        // An empty file is all that an interrupted creation leaves; anything else is not ours.
        let found = look_at(&files.data).map_err(|error| failed("look at the data file of", error));
        match found?.bytes {
            0 if !create => return Err(not_a_store("the data file is empty".to_string())),
            0 => files.sync_names(path)?,
            bytes @ 1..WHOLE_PAGE => {
                let why = format!("the data file ends at byte {bytes}, before the first page does");
                return Err(not_a_store(why));
            }
            _ => {}
        }
        let storage = io::open_in(io, &files.directory, Path::new(DATA_FILE)).map_err(opening)?;
        Ok((files, storage))
    }

    fn new(directory: Arc<Directory>, io: IoKind, data: File, read_only: bool) -> Files {
        let (log, released) = (Mutex::default(), Mutex::new(false));
        Files { directory, io, data, log, released, read_only }
    }

    /// Opens the directory and the data file of a store, which must be there, for reading only, and
    /// shares the lock with other read-only openings.
    pub fn open_read_only(path: &Path, io: IoKind) -> Result<(Files, Arc<dyn Storage>)> {
        let not_a_store = |why: String| Error::NotAStore { path: path.to_path_buf(), why };
        let directory = Arc::new(open_directory(path, false)?);
        let data_path = directory.path_of(DATA_FILE);
        let failed =
            |what: &str, error| Error::io(format_args!("{what} {}", data_path.display()), error);
        match directory.find(DATA_FILE).map_err(|error| failed("look at", error))? {
            Some(found) if found.is_file() => {}
            Some(found) => {
                let kind = found.kind();
                return Err(not_a_store(format!("its data file is {kind}, not a regular file")));
            }
            None => {
                check_empty(path, &directory, false)?;
                return Err(not_a_store("the directory has no data file".to_string()));
            }
        }
        let data = directory.open_to_read(DATA_FILE).map_err(|error| failed("open", error))?;
        match io::try_lock_shared(&data) {
            Ok(true) => {}
            Ok(false) => return Err(Error::AlreadyOpen { path: path.to_path_buf() }),
            Err(error) => return Err(failed("lock", error)),
        }
        let storage = io::open_read_only_in(io, &directory, Path::new(DATA_FILE));
        let storage = storage.map_err(|error| failed("open", error))?;
        Ok((Files::new(directory, io, data, true), storage))
    }

    /// The names of a new store must survive a power cut as well. An opening that has made the data
    /// file longer has synced them before.
    fn sync_names(&self, path: &Path) -> Result<()> {
        let synced = self.directory.sync();
        synced.map_err(|error| Error::io(format_args!("sync {}", path.display()), error))?;
        let synced = self.directory.parent().and_then(|parent| parent.sync());
        let action = format_args!("sync the directory above {}", path.display()).to_string();
        synced.map_err(|error| Error::io(action, error))
    }

    /// Whether there is a directory of the log.
    pub fn has_log(&self) -> Result<bool> {
        let found = self.directory.find(LOG_DIRECTORY);
        let path = self.directory.path_of(LOG_DIRECTORY);
        let found = found.map_err(|e| Error::io(format_args!("look at {}", path.display()), e))?;
        Ok(found.is_some())
    }

    /// Opens the log of the store at `path`, once. `exists`: it must be there already.
    pub fn open_log(&self, path: &Path, exists: bool) -> Result<Arc<dyn LogStorage>> {
        let mut log = self.log.lock();
        if let Some(open) = &*log {
            return Ok(open.storage.clone());
        }
        let wrong = |why: String| Error::WrongLog { path: path.to_path_buf(), why };
        let name = self.directory.path_of(LOG_DIRECTORY);
        let failed = |error| Error::io(format_args!("open the log in {}", name.display()), error);
        match self.directory.find(LOG_DIRECTORY).map_err(failed)? {
            None if exists => {
                return Err(wrong(format!("the directory {} is missing", name.display())));
            }
            Some(found) if !found.is_directory() => {
                let (name, kind) = (name.display(), found.kind());
                return Err(wrong(format!("{name} is {kind} where its directory has its place")));
            }
            _ => {}
        }
        let directory = self.directory.subdirectory(LOG_DIRECTORY, !exists).map_err(failed)?;
        let locked = match self.read_only {
            true => io::try_lock_shared(&directory),
            false => io::try_lock(&directory),
        };
        match locked {
            Ok(true) => {}
            Ok(false) => return Err(Error::AlreadyOpen { path: path.to_path_buf() }),
            // Network file systems lock only files that can be written.
            Err(error) => tracing::debug!(%error, "the directory of the log cannot be locked"),
        }
        let directory = Arc::new(directory);
        let storage = match self.read_only {
            true => open_log_read_only_in(directory.clone()),
            false => open_log_in(self.io, directory.clone()).map_err(failed)?,
        };
        *log = Some(OpenLog { directory, storage: storage.clone() });
        Ok(storage)
    }

    /// The directory of the store, or of its log, if it is no longer where it was opened.
    pub fn displaced(&self) -> Option<Displaced> {
        let log = self.log.lock().as_ref().map(|open| open.directory.clone());
        [Some(self.directory.clone()), log].into_iter().flatten().find_map(|directory| {
            let path = directory.path().to_path_buf();
            match directory.place() {
                Ok(Place::Here) => None,
                Ok(Place::Removed) => Some(Displaced { path, now: None }),
                Ok(Place::Moved(now)) => Some(Displaced { path, now: Some(now) }),
                // It may be there: nothing is known to be wrong.
                Err(error) => {
                    let path = path.display();
                    tracing::warn!(%error, %path, "whether it was moved cannot be seen");
                    None
                }
            }
        })
    }

    /// Unlocks the store. Nothing is written after this.
    pub fn release(&self) {
        let mut released = self.released.lock();
        if std::mem::replace(&mut *released, true) {
            return;
        }
        let log = self.log.lock().as_ref().map(|open| unlock(&open.directory));
        // The data file last: if it is unlocked, the log is unlocked too.
        for result in [log.unwrap_or(Ok(())), unlock(&self.data)] {
            if let Err(error) = result {
                let path = self.directory.path().display();
                tracing::warn!(%path, %error, "the store could not be unlocked");
            }
        }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        self.release();
    }
}

fn open_directory(path: &Path, create: bool) -> Result<Directory> {
    let not_a_store = |why: String| Error::NotAStore { path: path.to_path_buf(), why };
    match Directory::open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        // Not a part of the path before the last.
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory && path.exists() => {
            return Err(not_a_store("it is not a directory".to_string()));
        }
        Err(error) => return Err(Error::io(format_args!("open {}", path.display()), error)),
        Ok(directory) => return Ok(directory),
    }
    if !create {
        return Err(not_a_store("there is no such directory".to_string()));
    }
    Directory::open_or_create(path).map_err(|error| match path.parent() {
        Some(parent) if error.kind() == std::io::ErrorKind::NotFound => {
            let parent = parent.display();
            not_a_store(format!("there is no directory {parent} to create it in"))
        }
        _ => Error::io(format_args!("create the directory {}", path.display()), error),
    })
}

/// A directory without a data file has nothing that a new store could be mixed up with.
fn check_empty(path: &Path, directory: &Directory, create: bool) -> Result<()> {
    let not_a_store = |why: String| Error::NotAStore { path: path.to_path_buf(), why };
    let failed = |error| Error::io(format_args!("list {}", path.display()), error);
    let names = directory.names().map_err(failed)?;
    for name in &names {
        let found = directory.find_entry(name).map_err(failed)?;
        if name == LOST_AND_FOUND && found.is_some_and(|found| found.is_directory()) {
            continue;
        }
        // Hints that are checked before use. They outlive a store that was removed.
        if HINTS.iter().any(|hint| name == hint) {
            continue;
        }
        // Another device is mounted there for the log, or a link leads to one.
        if name == LOG_DIRECTORY
            && let Ok(log) = directory.subdirectory(LOG_DIRECTORY, false)
            && log.names().map_err(failed)?.iter().all(|name| name == LOST_AND_FOUND)
        {
            continue;
        }
        let what = match name == LOG_DIRECTORY {
            true => "the log of a store".to_string(),
            false => format!("other contents, such as {}", name.display()),
        };
        return Err(not_a_store(format!("the directory has no data file but {what}")));
    }
    match create {
        true => Ok(()),
        false => Err(not_a_store("the directory is empty".to_string())),
    }
}
