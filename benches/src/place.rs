//! Where a benchmark of cold data keeps its store.

use crate::text;
use std::sync::Arc;
use wattle::{
    Engine, IoKind, Options, Tree,
    io::{DeviceModel, MemoryLog, Storage, TimedStorage},
};

/// Where a store is: it stays there while it is closed and opened again.
pub enum Place {
    /// Files in a directory, which is removed at the end.
    Files(tempfile::TempDir),
    /// Memory, with the service times of a device.
    Simulated(Arc<dyn Storage>, Arc<MemoryLog>),
}

impl Place {
    /// Files in the directory of argument `dir=`; without it the simulated device of argument
    /// `device=`, or `device`.
    ///
    /// # Panics
    /// If the directory cannot be used or there is no such device.
    pub fn of_arguments(device: &str) -> Place {
        match text("dir", "").as_str() {
            "" => {
                let model = DeviceModel::parse(&text("device", device)).expect("a device");
                Place::Simulated(Arc::new(TimedStorage::new(model)), Arc::default())
            }
            directory => Place::Files(tempfile::tempdir_in(directory).expect("a directory")),
        }
    }

    /// Opens the store, and its tree `records`.
    ///
    /// # Panics
    /// If that fails.
    pub fn open(&self, options: Options) -> (Engine, Tree) {
        let engine = match self {
            Place::Files(directory) => {
                Engine::open(directory.path().join("store"), options.io(IoKind::Uring))
            }
            Place::Simulated(pages, log) => Engine::open_on(pages.clone(), log.clone(), options),
        };
        let engine = engine.expect("a store");
        let tree = engine.tree("records").expect("a tree");
        (engine, tree)
    }
}
