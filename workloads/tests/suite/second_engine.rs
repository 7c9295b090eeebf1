//! Another engine under the same drivers: it gets neutral options, and its runs say by which rules
//! they were measured.

use crate::support::{over_maps, store_at};
use serde_json::json;
use wattle_workloads::driver::control::Interrupt;
use wattle_workloads::driver::options::{Durability, Reads, StoreOptions};

#[test]
fn ycsb_and_tpcc_run_on_a_second_engine_and_keep_the_conditions_of_tpcc() {
    let folder = tempfile::tempdir().unwrap();
    let common = "--threads 1 --warmup 0 --pool 64MiB --log-limit 32MiB --report DIR/page.html";
    let rules = |reads, durability| {
        json!({
            "engine": "maps", "isolation": "serializable", "durability": durability,
            "reads": reads, "hints": "none", "delivery_queue": "off", "pin": false,
        })
    };
    for (run, operations, tables, conditions, reads) in [
        ("ycsb --workload f --records 1000 --operations 5000", 5000, 2, 1, Reads::Newest),
        ("tpcc --warehouses 1 --operations 2000 --check", 2000, 12, 15 + 14, Reads::Newest),
    ] {
        let name = run.split(' ').next().unwrap();
        let arguments = format!("{run} --db DIR/{name} {common}");
        let (end, result) = over_maps(&arguments, folder.path(), &Interrupt::default());
        assert_eq!(end, Ok(()), "{arguments}");
        assert_eq!(result["run"]["operations"], operations);
        let checked = result["check"]["conditions"].as_array().unwrap();
        assert!(checked.iter().all(|one| one["passed"] == true), "{checked:?}");
        assert_eq!(checked.len(), conditions, "{name}");
        assert_eq!(result["rules"], rules(reads.name(), "group"), "{name}");
        assert_eq!(result["settings"]["reads"], reads.name());
        let page = std::fs::read_to_string(folder.path().join("page.html")).unwrap();
        let shown = format!(
            "engine=maps, isolation=serializable, durability=group, reads={}",
            reads.name()
        );
        assert!(page.contains(&shown), "{name}");

        let path = folder.path().join(name);
        let options = store_at(&path).shared.opened_with.lock().unwrap().clone();
        let expected = StoreOptions {
            path,
            memory_bytes: 64 << 20,
            durability: Durability::Group,
            log: true,
            log_limit: 32 << 20,
            reads,
            threads: 1,
            tasks: 0,
            tables,
        };
        assert_eq!(options, Some(expected));
    }
}

#[test]
fn reads_follow_the_durability_unless_the_flag_says_otherwise() {
    let folder = tempfile::tempdir().unwrap();
    for (workload, flags, reads) in [
        ("ycsb --records 100", "", "newest"),
        ("ycsb --records 100", "--reads durable", "durable"),
        ("tatp --subscribers 100", "", "newest"),
        ("tatp --subscribers 100", "--durability sync", "durable"),
        ("tatp --subscribers 100", "--durability none", "durable"),
        ("tatp --subscribers 100", "--durability group", "newest"),
        ("tatp --subscribers 100", "--durability group --reads durable", "durable"),
        ("tatp --subscribers 100", "--reads newest", "newest"),
    ] {
        let name = workload.split(' ').next().unwrap();
        let arguments =
            format!("{workload} --db DIR/{name} --threads 1 --warmup 0 --operations 10 {flags}");
        let (end, result) = over_maps(&arguments, folder.path(), &Interrupt::default());
        assert_eq!(end, Ok(()), "{arguments}");
        assert_eq!(result["rules"]["reads"], reads, "{arguments}");
        assert_eq!(result["settings"]["reads"], reads, "{arguments}");
    }
}
