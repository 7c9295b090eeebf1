//! GlueSQL's own tests of storage.

use gluesql_core::prelude::Glue;
use gluesql_test_suite::*;
use tempfile::TempDir;
use wattle::{Durability, Engine, MIN_LOG_BYTES, Options};
use wattle_gluesql::WattleStorage;

struct OnWattle {
    glue: Glue<WattleStorage>,
    _dir: TempDir,
}

impl Tester<WattleStorage> for OnWattle {
    fn new(_: &str) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let options = Options::default()
            .pool_bytes(2 << 20)
            .log_bytes(MIN_LOG_BYTES)
            .durability(Durability::None);
        let engine = Engine::open(dir.path().join("store"), options).expect("an engine");
        let glue = Glue::new(WattleStorage::new(&engine).expect("a connection"));
        OnWattle { glue, _dir: dir }
    }

    fn get_glue(&mut self) -> &mut Glue<WattleStorage> {
        &mut self.glue
    }
}

generate_store_tests!(test, OnWattle);
generate_alter_table_tests!(test, OnWattle);
generate_custom_function_tests!(test, OnWattle);
generate_transaction_tests!(test, OnWattle);
generate_transaction_alter_table_tests!(test, OnWattle);
generate_metadata_table_tests!(test, OnWattle);
