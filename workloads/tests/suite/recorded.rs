//! A recorded run of TPC-C, for the suites that replay one: recorded once.

use std::process::Command;
use std::sync::OnceLock;

use wattle_workloads::simulate::trace::Trace;

/// 4,000 transactions on one warehouse, with a pool that evicts.
pub fn tpcc() -> &'static Trace {
    static TRACE: OnceLock<Trace> = OnceLock::new();
    TRACE.get_or_init(|| record(4_000))
}

/// As many transactions on one warehouse.
pub fn record(operations: u32) -> Trace {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tpcc.csv.zst");
    let mut command = Command::new(env!("CARGO_BIN_EXE_wattle"));
    command.args(["tpcc", "--warehouses", "1", "--pool", "20MiB", "--warmup", "0"]);
    command.args(["--threads", "1", "--durability", "none"]);
    command.args(["--operations", &operations.to_string()]);
    command.arg("--db").arg(folder.path().join("store"));
    command.arg("--record-trace").arg(&file);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Trace::read(&file).unwrap()
}
