//! A directory that is opened once. Every file in it is created, opened, renamed, removed and
//! synced relative to its descriptor.
//!
//! A path names another directory as soon as a program renames the directory or puts another one in
//! its place, or the process changes its working directory. A descriptor does not. So a store only
//! touches the directory that it was opened in, wherever that is by now, and [`Directory::place`]
//! tells if the path leads elsewhere.
//!
//! Invariant: the descriptor and the identity belong to the same directory for the life of the
//! value.
//!
//! Used by the data file, the log, the probe, and by the engine for its store directories and its
//! temporary files.

use crate::page::PageImage;
use rustix::{
    fs::{self, AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, Stat},
    io::Errno,
};
use std::{
    ffi::OsString,
    fs::File,
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::{ffi::OsStringExt, fs::FileExt},
    },
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// Permissions of new files and directories, before the umask of the process.
const FILE_MODE: Mode = Mode::from_raw_mode(0o666);
const DIRECTORY_MODE: Mode = Mode::from_raw_mode(0o777);

/// Identifies a file or directory as long as it exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// Number of the file system.
    pub(super) fn device(self) -> u64 {
        self.device
    }

    fn of(stat: &Stat) -> FileId {
        FileId { device: stat.st_dev, inode: stat.st_ino }
    }
}

/// The file that a name in a directory refers to. Symbolic links are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Identity of the file.
    pub id: FileId,
    /// Its length in bytes.
    pub bytes: u64,
    kind: FileType,
}

impl Found {
    fn of(stat: &Stat) -> Found {
        Found {
            id: FileId::of(stat),
            bytes: stat.st_size as u64,
            kind: FileType::from_raw_mode(stat.st_mode),
        }
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.kind.is_file()
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.kind.is_dir()
    }

    /// Its kind, for messages: "a file", "a directory" and so on.
    pub fn kind(&self) -> &'static str {
        match self.kind {
            FileType::RegularFile => "a file",
            FileType::Directory => "a directory",
            FileType::Symlink => "a symbolic link",
            FileType::Fifo => "a pipe",
            FileType::Socket => "a socket",
            FileType::CharacterDevice | FileType::BlockDevice => "a device",
            FileType::Unknown => "of an unknown kind",
        }
    }
}

/// Where an open directory is now, see [`Directory::place`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// At the path where it was opened.
    Here,
    /// Elsewhere: the path leads to another directory or nowhere. Holds the current path.
    Moved(PathBuf),
    /// It was removed with everything in it.
    Removed,
}

/// An open directory.
#[derive(Debug)]
pub struct Directory {
    fd: OwnedFd,
    path: PathBuf,
    id: FileId,
}

impl Directory {
    /// Opens the directory `path`, following symbolic links.
    ///
    /// # Errors
    /// As `open(2)`; [`io::ErrorKind::NotADirectory`] for a file.
    pub fn open(path: &Path) -> io::Result<Directory> {
        // The parent of a relative path of one component.
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        Directory::open_in(fs::CWD, path, std::path::absolute(path)?)
    }

    fn open_in(parent: BorrowedFd<'_>, name: &Path, path: PathBuf) -> io::Result<Directory> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = fs::openat(parent, name, flags, Mode::empty())?;
        let id = FileId::of(&fs::fstat(&fd)?);
        Ok(Directory { fd, path, id })
    }

    /// As [`Directory::open`]; creates the directory durably if it is absent. Its parent must
    /// exist.
    ///
    /// # Errors
    /// As `mkdir(2)` and `open(2)`; [`io::ErrorKind::NotFound`] if the parent is absent.
    pub fn open_or_create(path: &Path) -> io::Result<Directory> {
        match Directory::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            opened => return opened,
        }
        let Some(name) = path.file_name() else {
            return Err(io::ErrorKind::NotFound.into());
        };
        Directory::open(path.parent().unwrap_or(Path::new(".")))?
            .subdirectory(Path::new(name), true)
    }

    /// Opens the directory `name` in this one, following symbolic links. Creates it durably if it
    /// is absent and `create` is set.
    ///
    /// # Errors
    /// As `mkdir(2)` and `open(2)`.
    pub fn subdirectory(&self, name: impl AsRef<Path>, create: bool) -> io::Result<Directory> {
        let (name, path) = (name.as_ref(), self.path.join(&name));
        match Directory::open_in(self.fd.as_fd(), name, path.clone()) {
            Err(error) if create && error.kind() == io::ErrorKind::NotFound => {}
            opened => return opened,
        }
        match fs::mkdirat(&self.fd, name, DIRECTORY_MODE) {
            // Another thread or process may have created it.
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(self.explained(error.into())),
        }
        self.sync()?;
        Directory::open_in(self.fd.as_fd(), name, path)
    }

    /// The absolute path that it was opened with, for messages. The directory may be elsewhere now.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a file in it, for messages.
    pub fn path_of(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join(name)
    }

    /// The current place of the directory.
    ///
    /// # Errors
    /// The path cannot be examined, for instance because a directory above it must not be searched.
    pub fn place(&self) -> io::Result<Place> {
        let found = match fs::statat(fs::CWD, &self.path, AtFlags::empty()) {
            Ok(stat) => Some(FileId::of(&stat)),
            Err(Errno::NOENT | Errno::NOTDIR) => None,
            Err(error) => return Err(error.into()),
        };
        if found == Some(self.id) {
            return Ok(Place::Here);
        }
        if self.is_removed() {
            return Ok(Place::Removed);
        }
        // The kernel keeps the name of open files.
        let link = format!("/proc/self/fd/{}", self.fd.as_raw_fd());
        let now = fs::readlinkat(fs::CWD, link, Vec::new());
        let now = now.map(|path| PathBuf::from(OsString::from_vec(path.into_bytes())));
        Ok(Place::Moved(now.unwrap_or_else(|_| PathBuf::from("a place that cannot be named"))))
    }

    /// Whether the directory was removed, so that no file can be created in it.
    pub fn is_removed(&self) -> bool {
        fs::fstat(&self.fd).is_ok_and(|stat| stat.st_nlink == 0)
    }

    /// Explains the `error` of a call that creates something in the directory, if the directory was
    /// removed: the system then only says "not found" or "not permitted".
    pub fn explained(&self, error: io::Error) -> io::Error {
        let of_removed = [io::ErrorKind::NotFound, io::ErrorKind::PermissionDenied];
        if of_removed.contains(&error.kind()) && self.is_removed() {
            let what =
                format!("the directory {} was removed while it was open", self.path.display());
            return io::Error::new(error.kind(), what);
        }
        error
    }

    /// Opens the file `name` for reading and writing, following symbolic links.
    ///
    /// # Errors
    /// As `open(2)`.
    pub fn open_file(&self, name: impl AsRef<Path>) -> io::Result<File> {
        self.file(name, OFlags::RDWR)
    }

    /// As [`Directory::open_file`], for reading only. Leaves the access time unchanged where the
    /// system allows that, which is for the owner of the file.
    ///
    /// # Errors
    /// As `open(2)`.
    pub fn open_to_read(&self, name: impl AsRef<Path>) -> io::Result<File> {
        match self.file(&name, OFlags::RDONLY | OFlags::NOATIME) {
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                self.file(name, OFlags::RDONLY)
            }
            opened => opened,
        }
    }

    /// As [`Directory::open_to_read`], for a regular file only: opening a pipe would wait for its
    /// other end.
    ///
    /// # Errors
    /// As `open(2)`; [`io::ErrorKind::InvalidInput`] for anything but a regular file.
    pub fn open_regular(&self, name: impl AsRef<Path>) -> io::Result<File> {
        let not_regular = |found: Found| {
            let what = format!("it is {}, not a regular file", found.kind());
            io::Error::new(io::ErrorKind::InvalidInput, what)
        };
        // First a look: opening a device may do something.
        if let Some(found) = self.find(&name)?.filter(|found| !found.is_file()) {
            return Err(not_regular(found));
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let file = match self.file(&name, flags | OFlags::NOATIME) {
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => self.file(name, flags)?,
            opened => opened?,
        };
        match look_at(&file)? {
            found if found.is_file() => Ok(file),
            // It took the place of the file meanwhile.
            found => Err(not_regular(found)),
        }
    }

    /// As [`Directory::open_file`]; creates the file if it is absent, with the permissions of the
    /// umask.
    ///
    /// # Errors
    /// As `open(2)`.
    pub fn open_or_create_file(&self, name: impl AsRef<Path>) -> io::Result<File> {
        self.file(name, OFlags::RDWR | OFlags::CREATE)
    }

    /// Creates the file `name`, for reading and writing.
    ///
    /// # Errors
    /// As `open(2)`; [`io::ErrorKind::AlreadyExists`] if the name exists.
    pub fn create_file(&self, name: impl AsRef<Path>) -> io::Result<File> {
        self.file(name, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)
    }

    /// As [`Directory::create_file`], in place of a file, link, pipe or socket with this name,
    /// which is removed. A file that a link refers to stays as it is.
    ///
    /// # Errors
    /// As `open(2)` and `unlink(2)`; an error for a directory.
    pub fn create_file_anew(&self, name: impl AsRef<Path>) -> io::Result<File> {
        if self.find_entry(&name)?.is_some() {
            self.remove(&name)?;
        }
        self.create_file(name)
    }

    /// As [`Directory::open_direct`], for reading only, as [`Directory::open_to_read`].
    pub(super) fn open_direct_to_read(&self, name: &Path) -> io::Result<(File, bool)> {
        match self.open_direct(name, OFlags::RDONLY | OFlags::NOATIME) {
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                self.open_direct(name, OFlags::RDONLY)
            }
            opened => opened,
        }
    }

    /// Opens `name`, bypassing the page cache where the file system allows that; the second value
    /// says whether it does.
    pub(super) fn open_direct(&self, name: &Path, access: OFlags) -> io::Result<(File, bool)> {
        match self.file(name, access | OFlags::DIRECT) {
            // An empty file, such as one that is being created, accepts a read of nothing.
            Ok(file) if accepts_direct_reads(&file)? => Ok((file, true)),
            Err(error) if error.raw_os_error() != Some(libc::EINVAL) => Err(error),
            _ => Ok((self.file(name, access)?, false)),
        }
    }

    /// Opens `name` for transfers through the page cache.
    pub(super) fn open_cached(&self, name: &Path, access: OFlags) -> io::Result<File> {
        self.file(name, access)
    }

    fn file(&self, name: impl AsRef<Path>, flags: OFlags) -> io::Result<File> {
        let opened = fs::openat(&self.fd, name.as_ref(), flags | OFlags::CLOEXEC, FILE_MODE);
        opened.map(File::from).map_err(|error| self.explained(error.into()))
    }

    /// Creates a file for reading and writing without a name, which ends when it is closed.
    ///
    /// # Errors
    /// As `open(2)`.
    pub fn unnamed_file(&self) -> io::Result<File> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        match self.file(".", OFlags::RDWR | OFlags::TMPFILE) {
            // Some file systems and kernels do not support such files.
            Err(error)
                if [libc::EOPNOTSUPP, libc::EISDIR, libc::EINVAL]
                    .contains(&error.raw_os_error().unwrap_or(0)) => {}
            made => return made,
        }
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let name = format!(".wattle-{}-{number}", std::process::id());
            match self.create_file(&name) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => {
                    let file = made?;
                    self.remove(&name)?;
                    return Ok(file);
                }
            }
        }
    }

    /// Looks up `name`; `None` if it does not exist.
    ///
    /// # Errors
    /// As `stat(2)`.
    pub fn find(&self, name: impl AsRef<Path>) -> io::Result<Option<Found>> {
        self.find_with(name.as_ref(), AtFlags::empty())
    }

    /// As [`Directory::find`], but does not follow a symbolic link.
    ///
    /// # Errors
    /// As `lstat(2)`.
    pub fn find_entry(&self, name: impl AsRef<Path>) -> io::Result<Option<Found>> {
        self.find_with(name.as_ref(), AtFlags::SYMLINK_NOFOLLOW)
    }

    fn find_with(&self, name: &Path, flags: AtFlags) -> io::Result<Option<Found>> {
        match fs::statat(&self.fd, name, flags) {
            Ok(stat) => Ok(Some(Found::of(&stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Checks that `name` still refers to the file `id`.
    ///
    /// # Errors
    /// The file was removed, or another file has its name; as `stat(2)`.
    pub fn check_file(&self, name: impl AsRef<Path>, id: FileId) -> io::Result<()> {
        let what = match self.find(&name)? {
            Some(found) if found.id == id => return Ok(()),
            Some(_) => "was replaced by another file while it was in use",
            None => "was removed while it was in use",
        };
        let what = format!("{} {what}", self.path_of(name).display());
        Err(io::Error::new(io::ErrorKind::NotFound, what))
    }

    /// All names in it, in no order.
    ///
    /// # Errors
    /// As `open(2)` and `getdents(2)`.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.fd)? {
            let name = OsString::from_vec(entry?.file_name().to_bytes().to_vec());
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Renames a file within the directory, replacing a file that has the new name.
    ///
    /// # Errors
    /// As `rename(2)`.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
        Ok(fs::renameat(&self.fd, from.as_ref(), &self.fd, to.as_ref())?)
    }

    /// Removes a file.
    ///
    /// # Errors
    /// As `unlink(2)`.
    pub fn remove(&self, name: impl AsRef<Path>) -> io::Result<()> {
        Ok(fs::unlinkat(&self.fd, name.as_ref(), AtFlags::empty())?)
    }

    /// Makes its entries durable.
    ///
    /// # Errors
    /// As `fsync(2)`.
    pub fn sync(&self) -> io::Result<()> {
        Ok(fs::fsync(&self.fd)?)
    }

    /// Opens another descriptor of the directory; fails if the process has none left.
    pub(super) fn open_itself(&self) -> io::Result<OwnedFd> {
        self.fd.try_clone()
    }

    /// The directory that contains this one.
    ///
    /// # Errors
    /// As `open(2)`.
    pub fn parent(&self) -> io::Result<Directory> {
        Directory::open_in(self.fd.as_fd(), Path::new(".."), self.path.join(".."))
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Identity, length and kind of an open file.
///
/// # Errors
/// As `fstat(2)`.
pub fn look_at(file: impl AsFd) -> io::Result<Found> {
    Ok(Found::of(&fs::fstat(file)?))
}

/// Locks an open file or directory for this opening of it, without waiting. Returns false if
/// another opening has it locked. The lock ends with [`unlock`], or with the last copy of the
/// descriptor.
///
/// # Errors
/// As `flock(2)`.
pub fn try_lock(file: impl AsFd) -> io::Result<bool> {
    lock(file, FlockOperation::NonBlockingLockExclusive)
}

/// As [`try_lock`], but shared with others that lock it in this way.
///
/// # Errors
/// As `flock(2)`.
pub fn try_lock_shared(file: impl AsFd) -> io::Result<bool> {
    lock(file, FlockOperation::NonBlockingLockShared)
}

fn lock(file: impl AsFd, how: FlockOperation) -> io::Result<bool> {
    match fs::flock(file, how) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Ends a lock of [`try_lock`] at once, even if copies of the descriptor exist: a process that is
/// being spawned has some until it executes its program.
///
/// # Errors
/// As `flock(2)`.
pub fn unlock(file: impl AsFd) -> io::Result<()> {
    Ok(fs::flock(file, FlockOperation::Unlock)?)
}

/// Whether a call failed because the process or the system has no file descriptor left.
pub fn lacks_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// Opens the directory of a file; also returns the name of the file in it.
pub(super) fn split(path: &Path) -> io::Result<(Arc<Directory>, &Path)> {
    let Some(name) = path.file_name() else {
        return Err(io::ErrorKind::IsADirectory.into());
    };
    let directory = Directory::open(path.parent().unwrap_or(Path::new(".")))?;
    Ok((Arc::new(directory), Path::new(name)))
}

/// Some file systems accept O_DIRECT and then refuse page-sized transfers.
fn accepts_direct_reads(file: &File) -> io::Result<bool> {
    match file.read_at(&mut PageImage::zeroed().0, 0) {
        Ok(_) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(false),
        Err(error) => Err(error),
    }
}
