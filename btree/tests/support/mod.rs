//! A tree for one test.

use std::{sync::Arc, time::Duration};
use wattle_btree::{Context, Forest, Journal, Tree};
use wattle_buffer::{NoLog, PageAllocator, Pool, PoolOptions, TreeId, io::MemoryStorage};

/// An empty tree without a log; all of it must fit into the pool.
pub fn new_tree(pool_bytes: u64) -> (Context, Tree) {
    let options = PoolOptions {
        pool_bytes,
        policy: "watt".to_string(),
        evictors: 1,
        write_concurrency: 4,
        read_ahead: 32,
        ace: wattle_buffer::Ace::Off,
        write_order: wattle_buffer::WriteOrder::Value,
        stall_timeout: Duration::from_secs(10),
        swizzling: true,
        trace: None,
    };
    let (storage, forest) = (Arc::new(MemoryStorage::new()), Forest::new());
    let allocator = PageAllocator::new(Vec::new(), 64);
    let pool =
        Pool::open(options, storage, allocator, forest.clone(), Arc::new(NoLog)).expect("open");
    let cx = Context::new(pool.worker(), Journal::Off);
    let tree = Tree::create(&cx, &forest, TreeId(7)).expect("create");
    (cx, tree)
}
