//! The engine: one open store with its pool, its background threads and its catalog.
//!
//! Handles ([`Engine`], sessions) share one [`Core`]. The store is closed by [`Engine::close`], or
//! when the last handle is dropped; only the former can report a failure.

use crate::{
    async_session::AsyncSession,
    catalog::{CATALOG, Catalog, FIRST_TREE, OpenTree},
    options::Options,
    session::Session,
    stats::{Stats, TreeStat},
    store::{InUse, StoreFile, Superblock},
    verify::{self, VerifyReport},
};
use parking_lot::Mutex;
use std::{path::Path, sync::Arc};
use wattle_btree::{self as btree, Forest};
use wattle_buffer::{Background, Error, PageAllocator, PageId, Pool, Result, Worker, io::Storage};

/// What all handles of an open store share.
pub(crate) struct Core {
    pub pool: Arc<Pool>,
    pub forest: Arc<Forest>,
    pub catalog: Catalog,
    file: Arc<StoreFile>,
    background: Mutex<Option<Background>>,
    in_use: Arc<InUse>,
    closed: Mutex<bool>,
}

impl Core {
    /// An open tree holds its root in memory: there must be frames left for everything else.
    pub fn check_open_trees(&self, more: usize) -> Result<()> {
        let (open, limit) = (self.forest.len() + more, self.pool.frames() / 4);
        if open <= limit {
            return Ok(());
        }
        Err(Error::Limit(format!(
            "a pool of {} frames can keep at most {limit} trees open, this would be {open}",
            self.pool.frames()
        )))
    }

    /// Writes everything out and marks the store as cleanly closed. Only without other users.
    fn close(&self) -> Result<()> {
        let mut closed = self.closed.lock();
        if std::mem::replace(&mut *closed, true) {
            return Ok(());
        }
        // 1. Nothing changes any more.
        self.catalog.reclaim();
        drop(self.background.lock().take());
        self.catalog.release();
        // 2. Every page, then the bitmap.
        let written = self.pool.flush()?;
        if !self.in_use.is_marked() {
            tracing::info!(path = %self.file.path.display(), "closed unchanged");
            return Ok(());
        }
        let (catalog_root, next_tree) = self.catalog.roots();
        let (bitmap, capacity, _) = self.pool.allocator().snapshot();
        let sequence = self.in_use.block().sequence + 1;
        self.file.write_bitmap(&bitmap, sequence)?;
        // 3. All of it durable before the superblock says so.
        self.file.sync()?;
        let block = Superblock { sequence, clean: true, capacity, catalog_root, next_tree };
        self.file.write_superblock(&block)?;
        tracing::info!(path = %self.file.path.display(), pages_written = written, "closed");
        Ok(())
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::error!(path = %self.file.path.display(), %error, "the store was not closed");
        }
    }
}

/// An open store. Cheap to clone; all clones and sessions share it.
#[derive(Clone)]
pub struct Engine {
    core: Arc<Core>,
}

/// A tree of an engine: an ordered map from keys to values. Cheap to clone.
#[derive(Clone)]
pub struct Tree {
    pub(crate) open: Arc<OpenTree>,
}

impl Tree {
    /// The name it was created with.
    pub fn name(&self) -> &str {
        &self.open.name
    }
}

impl std::fmt::Debug for Tree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tree({:?})", self.name())
    }
}

impl Engine {
    /// Opens the store in the directory `path`, creating it if there is none. One process, and in
    /// it one engine, can have a store open at a time. With [`crate::IoKind::Memory`] nothing is
    /// stored and `path` is only a name.
    ///
    /// # Errors
    /// A path that is not a store or a store of another version, already open, damaged or not
    /// closed cleanly; options out of their limits; failed I/O. Nothing on disk is changed then.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Engine> {
        let file = StoreFile::open(path.as_ref(), options.io, options.create)?;
        Self::open_file(file, &options)
    }

    /// Opens a store on a storage that the caller made; for tests with simulated devices.
    ///
    /// # Errors
    /// As [`Engine::open`].
    pub fn open_on(storage: Arc<dyn Storage>, options: Options) -> Result<Engine> {
        Self::open_file(StoreFile::on(storage), &options)
    }

    fn open_file(file: StoreFile, options: &Options) -> Result<Engine> {
        // Everything that can be refused is, before the first write.
        let new = file.is_new();
        let (block, bitmap) = if new {
            let block = Superblock {
                sequence: 0,
                clean: true,
                capacity: 0,
                catalog_root: PageId(0),
                next_tree: FIRST_TREE,
            };
            (block, Vec::new())
        } else {
            let block = file.read_superblock()?;
            (block, file.read_bitmap(&block)?)
        };
        let file = Arc::new(file);
        let block_in_use = Superblock { sequence: block.sequence + 1, clean: false, ..block };
        let in_use = Arc::new(InUse::new(file.clone(), block_in_use));
        // An allocator of no pages: the pool checks its options before the file grows.
        let forest = Forest::new();
        let capacity = if new { 0 } else { block.capacity };
        let pool = Pool::open(
            options.pool_options(),
            file.storage.clone(),
            PageAllocator::new(bitmap, capacity),
            forest.clone(),
            in_use.clone(),
        )?;
        let worker = pool.worker();
        let (opened, next_tree) = if new {
            (None, FIRST_TREE)
        } else {
            let tree = btree::Tree::open(&worker, &forest, CATALOG, block.catalog_root)?;
            (Some(tree), block.next_tree)
        };
        if new {
            file.create()?;
            pool.allocator().extend(file.storage.capacity_pages());
            in_use.mark()?;
        }
        let background = Background::start(&pool)?;
        let tree = match opened {
            Some(tree) => tree,
            None => btree::Tree::create(&worker, &forest, CATALOG)?,
        };
        tracing::info!(
            path = %file.path.display(),
            back_end = file.storage.name(),
            frames = pool.frames(),
            policy = pool.policy_name(),
            new,
            "opened"
        );
        let catalog = Catalog::new(worker, forest.clone(), tree, next_tree);
        Ok(Engine {
            core: Arc::new(Core {
                pool,
                forest,
                catalog,
                file,
                background: Mutex::new(Some(background)),
                in_use,
                closed: Mutex::new(false),
            }),
        })
    }

    /// Opens the tree `name` (1 to 255 bytes), creating it if there is none.
    ///
    /// # Errors
    /// A bad name, too many open trees for the pool, a full device, failed I/O.
    pub fn tree(&self, name: &str) -> Result<Tree> {
        Ok(Tree { open: self.core.catalog.open_or_create(&self.core, name)? })
    }

    /// Opens the tree `name`, if there is one.
    ///
    /// # Errors
    /// As [`Engine::tree`].
    pub fn open_tree(&self, name: &str) -> Result<Option<Tree>> {
        Ok(self.core.catalog.open(&self.core, name)?.map(|open| Tree { open }))
    }

    /// Creates the tree `name`.
    ///
    /// # Errors
    /// [`Error::TreeExists`], and as [`Engine::tree`].
    pub fn create_tree(&self, name: &str) -> Result<Tree> {
        Ok(Tree { open: self.core.catalog.create(&self.core, name)? })
    }

    /// Drops a tree with everything in it and gives its pages back. `tree` must be the only handle.
    ///
    /// # Errors
    /// [`Error::TreeInUse`], [`Error::ForeignTree`], failed I/O.
    pub fn drop_tree(&self, tree: Tree) -> Result<()> {
        self.core.check_tree(&tree)?;
        self.core.catalog.drop_tree(tree.open)
    }

    /// Names of all trees, sorted.
    ///
    /// # Errors
    /// Failed I/O.
    pub fn trees(&self) -> Result<Vec<String>> {
        self.core.catalog.names()
    }

    /// A session whose operations block the calling thread. One for each thread.
    ///
    /// # Errors
    /// [`Error::Limit`] when the pool is too small for another session.
    pub fn session(&self) -> Result<Session> {
        self.core.pool.check_workers()?;
        Ok(Session::new(self.core.clone()))
    }

    /// A session whose operations are awaited; clones of it serve the tasks of one thread.
    ///
    /// # Errors
    /// [`Error::Limit`] when the pool is too small for another session.
    pub fn async_session(&self) -> Result<AsyncSession> {
        self.core.pool.check_workers()?;
        Ok(AsyncSession::new(self.core.clone()))
    }

    /// All counters, cumulative since the store was opened.
    pub fn stats(&self) -> Stats {
        Stats::of(&self.core.pool, &self.core.file)
    }

    /// The storage back end in use: `uring`, `threads`, `memory` or `sim`. `threads` may stand in
    /// for `uring` where io_uring is refused.
    pub fn back_end(&self) -> &'static str {
        self.core.file.storage.name()
    }

    /// Sizes of every tree. Reads all pages.
    ///
    /// # Errors
    /// Failed I/O.
    pub fn tree_stats(&self) -> Result<Vec<TreeStat>> {
        verify::tree_stats(&self.core)
    }

    /// Checks every page and every invariant of the store. Nothing may change it meanwhile.
    /// `progress` is called now and then with the number of records checked so far.
    ///
    /// # Errors
    /// Failed I/O. Damage is reported in the result.
    pub fn verify(&self, progress: &mut dyn FnMut(u64)) -> Result<VerifyReport> {
        verify::verify(&self.core, progress)
    }

    /// Writes everything out and closes the store.
    ///
    /// # Errors
    /// [`Error::Limit`] while sessions or other clones are alive; the store is then closed when
    /// the last of them is dropped. Failed I/O: what could not be written is lost with the engine,
    /// and the store counts as not closed.
    pub fn close(self) -> Result<()> {
        let others = Arc::strong_count(&self.core) - 1;
        if others > 0 {
            return Err(Error::Limit(format!(
                "the engine has {others} other handles or sessions: drop them before closing it"
            )));
        }
        self.core.close()
    }

    /// The pool, for tests and experiments.
    #[doc(hidden)]
    pub fn pool(&self) -> &Arc<Pool> {
        &self.core.pool
    }
}

impl Core {
    /// The tree belongs to this engine.
    #[inline(always)]
    pub fn check_tree(&self, tree: &Tree) -> Result<()> {
        if Arc::ptr_eq(tree.open.tree.pool(), &self.pool) {
            return Ok(());
        }
        Err(Error::ForeignTree(tree.name().to_string()))
    }

    pub fn worker(&self) -> Worker {
        self.pool.worker()
    }
}
