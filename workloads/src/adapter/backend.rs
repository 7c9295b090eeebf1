//! Opens Wattle for a workload.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use wattle::{Engine, Error, FlushPolicy, IoKind, Options, PageImages, PageTrace};

use super::store::EngineStore;
use crate::driver::backend::{Backend, OpenError};
use crate::driver::options::{Durability, Reads, StoreOptions};
use crate::report::figures::bytes;

/// How dirty pages are written.
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteBack {
    /// Whether they are written in batches.
    pub ace: wattle::Ace,
    /// Pages written at once, if not the default.
    pub concurrency: Option<usize>,
    /// The order in which they are written.
    pub order: wattle::WriteOrder,
}

/// Wattle, with the settings that no other engine has.
#[derive(Clone, Debug)]
pub struct Wattle {
    /// Page replacement policy, with its parameters.
    pub policy: String,
    /// Whether inner pages name the frames of their children.
    pub swizzling: bool,
    /// Whether full leaves give records to their neighbours.
    pub redistribution: bool,
    /// Whether the pages of the last run are read when a store is opened.
    pub warm_start: bool,
    /// Background evictor threads.
    pub evictors: usize,
    /// How dirty pages are written.
    pub write_back: WriteBack,
    /// The form of page images in the log.
    pub page_images: PageImages,
    /// Tuned figures of the threads of the log.
    pub log_policy: FlushPolicy,
    /// Storage back end.
    pub io: IoKind,
    /// Where page accesses are recorded.
    pub trace: Option<PageTrace>,
    /// Interrupts the opening of a store.
    pub interrupt: Arc<AtomicBool>,
}

impl Wattle {
    fn options(&self, asked: &StoreOptions) -> Options {
        let options = Options::default()
            .pool_bytes(asked.memory_bytes)
            .policy(self.policy.as_str())
            .swizzling(self.swizzling)
            .redistribution(self.redistribution)
            .warm_start(self.warm_start)
            .evictors(self.evictors)
            .page_images(self.page_images)
            .log_policy(self.log_policy)
            .io(self.io)
            .log(asked.log)
            .log_bytes(asked.log_limit)
            .durability(match asked.durability {
                Durability::Sync => wattle::Durability::Sync,
                Durability::Group => wattle::Durability::Group,
                Durability::None => wattle::Durability::None,
            })
            .reads(match asked.reads {
                Reads::Newest => wattle::Reads::Newest,
                Reads::Durable => wattle::Reads::Durable,
            })
            .interrupted_by(self.interrupt.clone());
        let options = options.ace(self.write_back.ace).write_order(self.write_back.order);
        let options = match self.write_back.concurrency {
            Some(pages) => options.write_concurrency(pages),
            None => options,
        };
        match &self.trace {
            Some(trace) => options.page_trace(trace.clone()),
            None => options,
        }
    }
}

impl Backend for Wattle {
    type Store = EngineStore;

    const NAME: &'static str = "wattle";
    const ISOLATION: &'static str = "snapshot";

    fn check(&self, asked: &StoreOptions) -> Result<(), OpenError> {
        let options = self.options(asked);
        options.check().map_err(not_opened)?;
        let least = Options::min_pool_bytes(asked.tables);
        if asked.memory_bytes < least {
            return Err(OpenError::Refused(format!(
                "a --pool of {} bytes is too small for {} tables; the minimum is {least}",
                asked.memory_bytes, asked.tables
            )));
        }
        let most = options.max_sessions();
        if asked.threads > most {
            return Err(OpenError::Refused(format!(
                "--threads {} are too many: a pool of {} serves at most {most}; give fewer \
                 --threads or a larger --pool",
                asked.threads,
                bytes(asked.memory_bytes)
            )));
        }
        Ok(())
    }

    fn open(&self, asked: &StoreOptions) -> Result<EngineStore, OpenError> {
        let engine = Engine::open(&asked.path, self.options(asked)).map_err(not_opened)?;
        Ok(EngineStore::new(engine, asked.pipelined()))
    }
}

/// Why the engine did not open a store: the path, the options or the store itself are wrong.
pub fn not_opened(error: Error) -> OpenError {
    match error {
        Error::NotAStore { .. }
        | Error::WrongVersion { .. }
        | Error::AlreadyOpen { .. }
        | Error::InvalidOption(_)
        | Error::Limit(_)
        | Error::PoolExhausted { .. } => OpenError::Refused(error.to_string()),
        Error::Io { ref source, .. } if source.kind() == ErrorKind::NotADirectory => {
            OpenError::Refused(error.to_string())
        }
        Error::Interrupted => {
            let sentence = "interrupted while opening the store; it can be opened again";
            OpenError::Interrupted(sentence.to_owned())
        }
        _ => OpenError::Failed(error.to_string()),
    }
}
