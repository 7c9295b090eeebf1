//! Short runs of the real binary, from flags to exit code, on stores larger than their pool,
//! damaged stores, and stores whose process was killed.
//!
//! `WATTLE_BINARY` names the binary to run; by default it is the one that was built with the tests.
//! `.ci/run` gives the release binary.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Longest time that a command may take.
const LIMIT: Duration = Duration::from_secs(240);

/// Resident memory that a process may have besides its pool, MiB.
const BESIDE_POOL: u64 = 64;

/// A folder for stores and outputs, which goes with this value; `DIR` in arguments stands for it.
struct Folder(tempfile::TempDir);

/// How a command ended, with both of its outputs.
struct Ended {
    code: Option<i32>,
    out: String,
    messages: String,
}

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, arguments: &str) -> Command {
        let binary = std::env::var_os("WATTLE_BINARY")
            .unwrap_or_else(|| env!("CARGO_BIN_EXE_wattle").into());
        let arguments = arguments.replace("DIR", self.0.path().to_str().unwrap());
        let mut command = Command::new(binary);
        command.args(arguments.split_whitespace()).stdin(Stdio::null());
        command
    }

    /// Runs a command, which must end in time. Its outputs go through files, so that no pipe fills.
    fn run(&self, arguments: &str) -> Ended {
        let outputs = [self.path("stdout"), self.path("stderr")];
        let [out, messages] = outputs.each_ref().map(|path| fs::File::create(path).unwrap());
        let mut child = self.command(arguments).stdout(out).stderr(messages).spawn().unwrap();
        let start = Instant::now();
        let code = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status.code();
            }
            if start.elapsed() > LIMIT {
                child.kill().unwrap();
                panic!("wattle {arguments}: still running after {LIMIT:?}");
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let [out, messages] = outputs.map(|path| fs::read_to_string(path).unwrap());
        Ended { code, out, messages }
    }

    /// Runs a command, which must end with the exit code `code` and say all of `parts`.
    fn ends(&self, code: i32, arguments: &str, parts: &[&str]) -> String {
        let Ended { code: found, out, messages } = self.run(arguments);
        assert_eq!(found, Some(code), "wattle {arguments}:\n{out}{messages}");
        for part in parts {
            let said = out.contains(part) || messages.contains(part);
            assert!(said, "wattle {arguments}: \"{part}\" is not in:\n{out}{messages}");
        }
        out
    }

    /// Runs a command that must succeed; gives its JSON output.
    fn json(&self, arguments: &str) -> Value {
        let out = self.ends(0, &format!("{arguments} --format json"), &[]);
        serde_json::from_str(&out).unwrap()
    }

    /// Runs a workload that must succeed and find nothing wrong.
    fn workload(&self, arguments: &str) -> Value {
        let result = self.json(&format!("{arguments} --warmup 200ms"));
        assert_eq!(result["check"]["passed"], true, "{arguments}: {result:#}");
        assert!(result["run"]["operations"].as_u64() > Some(0), "{arguments}: {result:#}");
        result
    }

    /// Starts a command and kills it after some time.
    fn killed(&self, after: Duration, arguments: &str) {
        let mut command = self.command(&format!("{arguments} --duration 60s"));
        let mut child: Child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(after);
        child.kill().unwrap();
        let status = child.wait().unwrap();
        assert_eq!(status.code(), None, "wattle {arguments} ended before it was killed");
    }
}

/// The data did not fit into the pool of `mib` MiB, and the process stayed within its budget.
fn outgrew(result: &Value, mib: u64) {
    for counter in ["faults", "pages_written"] {
        let counted = result["buffer"][counter].as_u64();
        assert!(counted > Some(0), "{counter}: the data fitted into memory");
    }
    bounded(result, mib);
}

fn bounded(result: &Value, mib: u64) {
    let peak = result["process"]["peak_rss_bytes"].as_u64().unwrap() >> 20;
    assert!(peak <= mib + BESIDE_POOL, "{peak} MiB resident with a pool of {mib} MiB");
}

fn reused(result: &Value) -> bool {
    result["load"]["reused"].as_bool().unwrap()
}

/// Copies a store.
fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

fn damage(path: &Path, at: u64) {
    let file = fs::File::options().write(true).open(path).unwrap();
    file.write_all_at(b"damage", at).unwrap();
}

#[test]
fn ycsb_on_data_six_times_the_pool() {
    let folder = Folder::new();
    let common = "--records 100000 --pool 16MiB --db DIR/store";
    let loaded = folder.workload(&format!("ycsb --workload a {common} --duration 3s"));
    outgrew(&loaded, 16);
    assert!(!reused(&loaded), "the store was there before it was loaded");
    let again = folder.workload(&format!("ycsb --workload a {common} --duration 3s --tasks 32"));
    assert!(reused(&again), "the store was loaded again");
    outgrew(&again, 16);
    for workload in ["c", "e", "f"] {
        for tasks in [0, 32] {
            let run = format!("ycsb --workload {workload} {common} --duration 1s --tasks {tasks}");
            folder.workload(&run);
        }
    }
    folder.workload(&format!("ycsb --workload b {common} --duration 1s --policy random"));
    folder.workload(&format!("ycsb --workload a {common} --duration 1s --io threads --tasks 8"));
    folder.workload("ycsb --workload a --records 20000 --pool 64MiB --duration 1s --io memory");
    let outputs = "--samples DIR/samples.csv --report DIR/report.html";
    let run = format!("ycsb --workload b {common} --warmup 200ms --duration 1500ms {outputs}");
    folder.ends(0, &run, &["durability", "isolation=snapshot", "reads=newest"]);
    let samples = fs::read_to_string(folder.path("samples.csv")).unwrap();
    assert!(samples.lines().count() >= 2, "--samples wrote no row");
    let page = fs::read_to_string(folder.path("report.html")).unwrap();
    assert!(page.contains("<svg"), "--report has no plot");

    folder.ends(0, "verify DIR/store --pool 32MiB", &["nothing is wrong"]);
    assert_eq!(folder.json("verify DIR/store --io threads")["passed"], true);
    folder.ends(0, "stat DIR/store", &["ycsb-meta"]);
    let records = &folder.json("stat DIR/store")["trees"][0]["records"];
    assert!(records.as_u64() >= Some(100_000), "{records}");
    folder.ends(2, "ycsb --records 100 --db DIR/store", &["100,000 records"]);
    folder.ends(2, "tpcc --warehouses 1 --db DIR/store", &["no TPC-C data"]);
    folder.ends(2, "verify --tpcc DIR/store", &["no TPC-C data"]);
}

#[test]
fn a_copy_by_dump_and_load_is_the_same() {
    let folder = Folder::new();
    let run = "ycsb --workload c --records 1000 --pool 16MiB --duration 200ms --db DIR/small";
    folder.workload(run);
    let dump = folder.ends(0, "dump DIR/small", &[]);
    fs::write(folder.path("dump"), &dump).unwrap();
    let input = fs::File::open(folder.path("dump")).unwrap();
    assert!(folder.command("load DIR/copy").stdin(input).status().unwrap().success());
    assert!(folder.ends(0, "dump DIR/copy", &[]) == dump, "a copy by dump and load differs");
}

#[test]
fn tpcb_and_tatp_with_their_checks_and_a_recorded_trace() {
    let folder = Folder::new();
    for run in ["tpcb --scale 1", "tatp --subscribers 20000"] {
        let name = run.split(' ').next().unwrap();
        for crew in ["--durability group", "--tasks 8"] {
            let result = folder.workload(&format!(
                "{run} --pool 8MiB --db DIR/{name} --duration 1s --check {crew} \
                 --record-trace DIR/{name}.csv.zst"
            ));
            assert!(result["run"]["trace_accesses"].as_u64() > Some(0), "{result:#}");
        }
        let verify = format!("verify --{name} DIR/{name} --pool 32MiB");
        folder.ends(0, &verify, &["nothing is wrong", "passed: "]);
        let simulate =
            format!("simulate --trace DIR/{name}.csv.zst --policy watt --policy lru --cache 5%");
        folder.ends(0, &simulate, &["watt", "lru"]);
    }
}

#[test]
fn the_lab_replays_generated_traces_and_refuses_bad_input() {
    let folder = Folder::new();
    folder.ends(
        0,
        "simulate --trace gen:80-20:pages=2000,accesses=60000 --cache 5%,20% --bound \
         --policy lru arc lirs watt watt2 for+ opt ace(lru):nw=4,ne=1 --normalise watt",
        &["watt2", "no policy costs less"],
    );
    let all = folder.ends(
        0,
        "simulate --trace gen:dynZipfRW:pages=1000,accesses=30000 --cache 50 --policy all \
         --format csv --report DIR/lab.html",
        &[],
    );
    assert!(all.lines().count() >= 40, "--policy all left policies out");
    let page = fs::read_to_string(folder.path("lab.html")).unwrap();
    assert!(page.contains("<svg"), "--report has no plot");
    assert!(page.contains("writes relative to watt by write_weight"), "--report has no studies");
    folder.ends(
        0,
        "simulate --trace gen:MS:pages=1000,accesses=20000 --cache 20,100 --scan-test --bound \
         --policy ace(opt):ne=8 ace(watt):ne=8 ace(leanevict) for",
        &["points lost", "to find the next dirty pages"],
    );
    let replay = "simulate --trace gen:TPC-B:accesses=20000 --policy watt2 --format json";
    let json: Value = serde_json::from_str(&folder.ends(0, replay, &[])).unwrap();
    assert!(json["rows"][0]["misses"].as_u64() > Some(0), "{json:#}");
    let trace = |text: &str| fs::write(folder.path("trace.csv"), text).unwrap();
    let lab = "simulate --trace DIR/trace.csv";
    trace("1,R\n2,W\n3,R\n1,W\n");
    folder.ends(0, &format!("{lab} --cache 2"), &[]);
    for (flags, parts) in [
        ("--cache 2 --policy no-such-policy", &["unknown policy", "watt2", "opt"][..]),
        ("--cache 2 --policy watt:colour=1", &["no parameter", "epochs"]),
        ("--cache 0", &["above 0"]),
        ("--cache 4", &["larger than trace"]),
    ] {
        folder.ends(2, &format!("{lab} {flags}"), parts);
    }
    trace("1,R\n2\n");
    folder.ends(2, &format!("{lab} --cache 1"), &["trace.csv", "line 2"]);
    trace("");
    folder.ends(2, &format!("{lab} --cache 1"), &["no access"]);
}

#[test]
fn bad_input_is_refused_and_changes_nothing() {
    let folder = Folder::new();
    folder.ends(2, "ycsb --no-such-flag", &["error:"]);
    folder.ends(2, "ycsb --pool 4KiB", &["too small", "minimum"]);
    folder.ends(2, "ycsb --policy no-such-policy", &["watt", "random"]);
    folder.ends(2, "verify DIR/no-such-store", &["not a Wattle store"]);
    folder.ends(2, "tpcc --warehouses 0", &["--warehouses"]);
    fs::create_dir(folder.path("other")).unwrap();
    fs::write(folder.path("other/notes"), "notes").unwrap();
    folder.ends(2, "verify DIR/other", &["not a Wattle store"]);
    folder.ends(2, "ycsb --db DIR/other", &["not a Wattle store"]);
    let left: Vec<_> = fs::read_dir(folder.path("other")).unwrap().collect();
    assert_eq!(left.len(), 1, "a directory that is no store was changed: {left:?}");
    assert_eq!(fs::read(folder.path("other/notes")).unwrap(), b"notes");
}

#[test]
fn damaged_pages_are_found() {
    let folder = Folder::new();
    let run = "ycsb --workload c --records 1000 --pool 16MiB --duration 200ms --db DIR/small";
    folder.workload(run);
    copy(&folder.path("small"), &folder.path("damaged"));
    // After superblocks and bitmap, in the middle of pages that are in use.
    for page in [5, 9, 20, 40, 80] {
        damage(&folder.path("damaged/data"), page * 4096 + 2000);
    }
    folder.ends(1, "verify DIR/damaged", &["page"]);
    folder.ends(0, "verify DIR/small", &["nothing is wrong"]);
}

/// The store of a process that was killed is recovered: nothing is wrong, and every record has a
/// value that was written to it.
#[test]
fn a_killed_process_loses_nothing_and_a_damaged_log_is_found() {
    let folder = Folder::new();
    let store = "--records 50000 --pool 16MiB --db DIR/recover";
    folder.workload(&format!("ycsb --workload a {store} --duration 500ms"));
    for round in 1..=10 {
        let durability = if round % 2 == 0 { "group" } else { "sync" };
        let after = Duration::from_millis(1000 + round * 7 % 10 * 100);
        let flags = format!("--durability {durability} --log-limit 8MiB --warmup 0");
        folder.killed(after, &format!("ycsb --workload a {store} {flags}"));
        folder.ends(0, "verify DIR/recover", &["nothing is wrong"]);
    }
    let read = folder.workload(&format!("ycsb --workload c {store} --duration 1s"));
    assert!(reused(&read), "the store was loaded again");
    folder.ends(0, "stat --log DIR/recover", &[]);

    folder.killed(Duration::from_millis(1500), &format!("ycsb --workload a {store} --warmup 0"));
    copy(&folder.path("recover"), &folder.path("damaged"));
    for segment in fs::read_dir(folder.path("damaged/log")).unwrap() {
        let segment = segment.unwrap().path();
        if segment.extension().is_some_and(|extension| extension == "log") {
            damage(&segment, 9000);
        }
    }
    folder.ends(1, "verify DIR/damaged", &["error:"]);
    folder.ends(0, "verify DIR/recover", &["nothing is wrong"]);
    fs::rename(folder.path("recover/log"), folder.path("recover/elsewhere")).unwrap();
    folder.ends(1, "verify DIR/recover", &["log"]);
}

/// Without a log a store whose process was killed is refused, with the reason.
#[test]
fn a_killed_process_without_a_log_leaves_a_store_that_is_refused() {
    let folder = Folder::new();
    let closed = "ycsb --workload c --records 1000 --pool 16MiB --log off --db DIR/closed";
    folder.workload(&format!("{closed} --duration 200ms"));
    folder.ends(0, "verify DIR/closed", &["nothing is wrong"]);
    let run = "ycsb --workload a --records 200000 --pool 32MiB --log off --db DIR/killed";
    folder.killed(Duration::from_secs(2), run);
    folder.ends(1, "verify DIR/killed", &["without a log"]);
}

#[test]
fn tpcc_keeps_its_conditions_larger_than_memory_with_tasks_and_after_kills() {
    let folder = Folder::new();
    let common = "tpcc --warehouses 1 --pool 20MiB --db DIR/tpcc";
    let loaded = folder.workload(&format!("{common} --check --duration 3s"));
    outgrew(&loaded, 20);
    assert!(!reused(&loaded), "the warehouse was there before it was loaded");
    let again = folder.workload(&format!("{common} --check --duration 3s --tasks 32"));
    assert!(reused(&again), "the warehouse was loaded again");
    let helped = folder.workload(&format!(
        "{common} --check --duration 2s --tasks 32 --durability group --hints prefetch \
         --delivery-queue on"
    ));
    let rules = |result: &Value| {
        let rules = &result["rules"];
        let text = |name: &str| rules[name].as_str().unwrap().to_owned();
        [text("isolation"), text("reads"), text("hints"), text("delivery_queue")]
    };
    assert_eq!(rules(&again), ["snapshot", "newest", "none", "off"]);
    assert_eq!(rules(&helped), ["snapshot", "newest", "prefetch", "on"]);
    for mix in ["new-order", "payment", "order-status", "delivery", "stock-level"] {
        let run = format!("{common} --check --duration 300ms --durability group --mix {mix}");
        folder.workload(&run);
    }
    for round in 1..=5 {
        let crew = match round % 2 {
            0 => "--threads 2 --tasks 16",
            _ => "--threads 4 --durability group",
        };
        let after = Duration::from_millis(1000 + round * 7 % 10 * 100);
        folder.killed(after, &format!("{common} --log-limit 8MiB --warmup 0 {crew}"));
        let parts = ["nothing is wrong", "passed: now, 3.3.2.12"];
        folder.ends(0, "verify --tpcc DIR/tpcc", &parts);
    }
    folder.ends(2, "tpcc --warehouses 2 --db DIR/tpcc", &["holds 1 TPC-C warehouse,"]);
}

/// The rows of a breakdown add up to 100 %, and the release binary, which has line tables, knows
/// the component of nearly all samples.
#[test]
fn a_breakdown_adds_up_and_leaves_little_unattributed() {
    let folder = Folder::new();
    let report = folder.path("b.html");
    let flags = "--records 40000 --warehouses 1 --pool 256MiB --duration 1500ms --warmup 300ms \
                 --threads 1,2 --durability none --format json --report DIR/b.html";
    let Ended { code, out, messages } = folder.run(&format!("breakdown {flags}"));
    let is_release = std::env::var_os("WATTLE_BINARY").is_some();
    if !is_release && messages.contains("no line tables") {
        assert_eq!(code, Some(1), "{messages}");
        return;
    }
    assert_eq!(code, Some(0), "{out}{messages}");
    let found: Value = serde_json::from_str(&out).unwrap();
    let runs = found["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 6, "three workloads with 1 and 2 threads");
    for run in runs {
        let (name, profile) = (&run["workload"], &run["profile"]);
        assert!(run["operations"].as_u64().unwrap() > 0, "{run}");
        let samples = profile["samples"].as_u64().unwrap();
        assert!(samples >= 3, "{name}: {samples} samples");
        let rows = profile["rows"].as_array().unwrap();
        for column in ["percent", "foreground_percent", "background_percent"] {
            let sum: f64 = rows.iter().map(|row| row[column].as_f64().unwrap()).sum();
            assert!((sum - 100.0).abs() < 0.1, "{name}, {column}: {sum}");
        }
        assert!(profile["sampling_percent"].as_f64().unwrap() < 3.0, "{profile}");
        // Either the system counts instructions, or the result says why not.
        let instructions = profile.pointer("/foreground/events/instructions");
        match profile["no_events"].as_str() {
            Some(why) => assert!(!why.is_empty() && instructions.is_none(), "{profile}"),
            None => assert!(instructions.unwrap().as_f64().unwrap() > 1e6, "{profile}"),
        }
        if is_release {
            let row = rows.iter().find(|row| row["component"] == "unattributed").unwrap();
            let share = row["percent"].as_f64().unwrap();
            assert!(share < 5.0, "{name}: {share} % in {}", profile["hot"]);
        }
    }
    let page = fs::read_to_string(report).unwrap();
    assert!(page.ends_with("</html>\n") && page.matches("<svg").count() == 3);
}

/// The smallest of each experiment runs to its end, and its results are whole.
#[test]
fn every_experiment_runs_at_its_smallest_scale() {
    let folder = Folder::new();
    let listed = folder.ends(0, "experiment", &["watt-effectiveness", "threads"]);
    let names: Vec<&str> = listed.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(names.len() >= 10, "{listed}");
    for name in names {
        let run = format!("experiment {name} --scale smoke --out DIR/{name}");
        let plan = folder.run(&format!("{run} --dry-run"));
        if plan.code == Some(2) {
            // Nothing of it is built in; the reason is said.
            assert!(plan.messages.contains("can run no cell"), "{name}: {}", plan.messages);
            continue;
        }
        assert!(!folder.path(name).exists(), "--dry-run made {name}");
        folder.ends(0, &run, &["ratio", "results.csv and report.html"]);
        let file = |file: &str| fs::read_to_string(folder.path(&format!("{name}/{file}"))).unwrap();
        let cells = plan.out.lines().filter(|line| line.starts_with("cell ")).count();
        let runs = file("journal.jsonl").lines().count() - 1;
        assert!(cells > 0 && runs == cells, "{name}: {cells} cells, {runs} runs");
        assert!(file("results.csv").lines().count() > cells, "{name}");
        assert!(file("report.html").contains("<svg"), "{name}");
        assert!(!folder.path(&format!("{name}/stores")).exists(), "{name} left its stores");
    }
}

/// An experiment that was interrupted goes on, and one of another configuration is refused.
#[test]
fn an_experiment_goes_on_after_an_interrupt_and_bad_input_is_refused() {
    let folder = Folder::new();
    let run = "experiment write-weight --scale smoke --repetitions 3 --out DIR/out";
    let mut child =
        folder.command(run).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let journal = folder.path("out/journal.jsonl");
    let lines = || fs::read_to_string(&journal).map_or(0, |text| text.lines().count());
    let start = Instant::now();
    while lines() < 3 {
        assert!(start.elapsed() < LIMIT, "no run has ended");
        assert_eq!(child.try_wait().unwrap(), None, "it ended early");
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let done = lines();
    folder.ends(2, run, &["--resume goes on"]);
    let others = [
        ("--repetitions 4", "repetitions is 3 there and 4 here"),
        ("--repetitions 3 --seed 2", "seed is 1 there and 2 here"),
    ];
    for (flags, difference) in others {
        let other = format!("experiment write-weight --scale smoke {flags} --out DIR/out --resume");
        folder.ends(2, &other, &[difference]);
    }
    folder.ends(0, &format!("{run} --resume"), &["ratio"]);
    let whole = lines();
    assert!(whole == 1 + 4 * 3 && done < whole, "{done} of {whole}");
    folder.ends(2, "experiment no-such", &["unknown experiment", "write-weight", "Figure 9"]);
    folder.ends(2, "experiment threads --resume --out DIR/nothing", &["--resume finds no"]);
    let paper = "experiment watt-effectiveness --scale paper --out DIR/paper";
    folder.ends(2, paper, &["needs 64 cores", "this machine has", "--scale small"]);
    assert!(!folder.path("paper").exists(), "a refused experiment left something");
}
