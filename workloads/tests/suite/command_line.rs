//! The binary refuses bad input with exit code 2 and one sentence that names the accepted values.

use std::io::Read;
use std::process::{Command, Output, Stdio};

fn wattle(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_wattle")).args(arguments).output().unwrap()
}

/// Asserts that `arguments` are refused with a single line that contains all of `parts`.
fn refused(arguments: &[&str], parts: &[&str]) {
    let output = wattle(arguments);
    let sentence = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {sentence}");
    assert!(output.stdout.is_empty(), "{arguments:?} printed a result");
    assert_eq!(sentence.lines().count(), 1, "{arguments:?}: {sentence}");
    assert!(sentence.starts_with("error: "), "{arguments:?}: {sentence}");
    for part in parts {
        assert!(sentence.contains(part), "{arguments:?}: \"{part}\" is not in: {sentence}");
    }
}

#[test]
fn values_that_do_not_parse_are_refused() {
    for (arguments, parts) in [
        ("--pool 12XB", ["--pool", "12XB", "KiB, MiB, GiB"]),
        ("--pool 0", ["--pool", "above 0", "4KiB"]),
        ("--pool 8000GiB", ["--pool", "8000GiB", "must fit into the"]),
        ("--duration 10", ["--duration", "10", "ms, s, m or h"]),
        ("--duration 0s", ["--duration", "above 0", "10s"]),
        ("--warmup soon", ["--warmup", "soon", "ms, s, m or h"]),
        ("--threads 0", ["--threads", "0", "1..=1024"]),
        ("--threads 5000", ["--threads", "5000", "1..=1024"]),
        ("--threads x", ["--threads", "x", "not a number"]),
        ("--tasks 5000", ["--tasks", "5000", "0..=4096"]),
        ("--evictors 0", ["--evictors", "0", "1..=256"]),
        ("--records 0", ["--records", "0", "1..=4294967296"]),
        ("--fields 0", ["--fields", "0", "1..=65536"]),
        ("--field-size 0", ["--field-size", "above 0", "size"]),
        ("--operations 0", ["--operations", "0", "1.."]),
        ("--seed -1", ["-1", "unexpected", "--help"]),
        (
            "--workload g",
            ["--workload", "g", "[possible values: a, b, c, d, e, f, ms, wis, ris, mu]"],
        ),
        (
            "--distribution normal",
            ["normal", "possible values", "zipfian, uniform, latest, hotspot"],
        ),
        ("--io floppy", ["floppy", "known are", "uring, threads, buffered, memory and sim"]),
        ("--format xml", ["xml", "possible values", "text, json"]),
        ("--colour", ["--colour", "unexpected", "--help lists"]),
        ("--theta x", ["--theta", "x", "invalid float"]),
    ] {
        let words: Vec<&str> = ["ycsb"].into_iter().chain(arguments.split(' ')).collect();
        refused(&words, &parts);
    }
}

#[test]
fn values_that_make_no_sense_together_are_refused() {
    for (arguments, parts) in [
        ("--read 0 --update 0", ["add up to 0", "--rmw", "above 0"]),
        ("--read -1 --update 2", ["--read", "not negative", "-1"]),
        ("--read NaN", ["--read", "not negative", "NaN"]),
        ("--theta inf", ["--theta inf", "above 0", "0.99"]),
        ("--theta 0", ["--theta 0", "above 0", "0.99"]),
        ("--theta -0.5", ["--theta -0.5", "above 0", "0.99"]),
        ("--theta 0.9 --workload wis", ["--theta", "hotspot", "zipfian or latest"]),
        ("--theta 0.9 --distribution uniform", ["--theta", "uniform", "zipfian or latest"]),
        ("--value-size 100 --fields 3", ["--value-size", "--fields", "cannot be used with"]),
        ("--value-size 2GiB", ["2147483648 bytes", "too large", "1 GiB"]),
        ("--fields 65536 --field-size 1GiB", ["bytes", "too large", "1 GiB"]),
        ("--key-size 16", ["--key-size", "8 bytes", "24 to 1024"]),
        ("--duration 1s --operations 5", ["--duration", "--operations", "cannot be used with"]),
        ("--threads 1000 --tasks 4096", ["4096000", "in flight", "at most 65536"]),
        ("--db x --io memory", ["--db", "--io memory", "uring or threads"]),
        ("--log-limit 1MiB", ["--log-limit", "too small", "2 MiB"]),
    ] {
        let words: Vec<&str> = ["ycsb"].into_iter().chain(arguments.split(' ')).collect();
        refused(&words, &parts);
    }
}

#[test]
fn outputs_over_the_store_or_over_each_other_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let store = path("store");
    let run = ["ycsb", "--db", &store, "--records", "10", "--operations", "10", "--warmup", "0"];
    assert_eq!(wattle(&run).status.code(), Some(0));
    std::os::unix::fs::symlink(&store, path("link")).unwrap();
    std::os::unix::fs::symlink(path("store/data"), path("innocent.csv")).unwrap();
    let before = std::fs::read(path("store/data")).unwrap();
    for subcommand in ["ycsb", "tpcc", "tpcb", "tatp"] {
        for flag in ["--samples", "--report", "--record-trace"] {
            for output in
                ["store/data", "store/new", "link/data", "link/../store/data", "innocent.csv"]
            {
                let output = path(output);
                let words = [subcommand, "--db", &store, flag, &output];
                refused(&words, &[flag, &output, "in the directory of the store"]);
            }
        }
    }
    assert!(std::fs::read(path("store/data")).unwrap() == before, "the data file has changed");
    let (one, fresh) = (path("one"), path("fresh"));
    std::fs::write(path("old"), "old").unwrap();
    std::fs::hard_link(path("old"), path("same")).unwrap();
    refused(
        &["tatp", "--samples", &path("old"), "--record-trace", &path("same")],
        &["--samples and --record-trace are both", &path("same")],
    );
    assert_eq!(std::fs::read_to_string(path("old")).unwrap(), "old");
    refused(
        &["tpcc", "--samples", &one, "--report", &one],
        &["--samples and --report are both", &one, "file of its own"],
    );
    // A store that is not there yet.
    refused(&["tpcc", "--db", &fresh, "--report", &path("fresh/x")], &["directory of the store"]);
    assert!(!folder.path().join("one").exists() && !folder.path().join("fresh").exists());
    let nowhere = ["--samples", "/dev/null", "--report", "/dev/null"];
    assert_eq!(wattle(&[&run[..], &nowhere].concat()).status.code(), Some(0));
}

#[test]
fn one_of_a_kind_is_in_the_singular() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let store = store.to_str().unwrap();
    let (_folder, trace) = small_trace("1,R\n");
    for (arguments, parts) in [
        (
            "ycsb --records 1 --fields 1 --field-size 1 --operations 1 --warmup 0 --threads 1",
            ["1 record,", "1 operation,"],
        ),
        (
            "ycsb --records 2",
            ["holds 1 record with keys of 24 bytes and values of 1 byte,", "2 records"],
        ),
        ("verify", ["and 2 records", "with 2 trees"]),
        ("stat", ["records", "less after wattle compact"]),
        ("compact", ["moved 0 pages", "the data file has 32 KiB"]),
        ("simulate --cache 1", ["1 access, 1 page, cache", "cache of 1 page ("]),
        ("simulate --cache 2", ["a cache of 2 pages", "which has 1 different page"]),
    ] {
        let mut words: Vec<_> = arguments.split(' ').collect();
        words.extend(match words[0] {
            "ycsb" => vec!["--db", store],
            "simulate" => vec!["--trace", &trace],
            _ => vec![store],
        });
        let output = wattle(&words);
        let text = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        let text = text.concat();
        for part in parts {
            assert!(text.contains(part), "{arguments}: \"{part}\" is not in: {text}");
        }
        let words: Vec<_> = text.split_whitespace().collect();
        for pair in words.windows(2) {
            let noun = pair[1].trim_end_matches(|letter: char| !letter.is_ascii_alphanumeric());
            let many = noun.ends_with('s') && !noun.ends_with("ss") && noun.len() > 2;
            let many = many && !noun.starts_with('-');
            assert!(pair[0] != "1" || !many, "{arguments}: \"1 {noun}\" is in: {text}");
        }
    }
}

#[test]
fn results_that_cannot_be_printed_are_told_in_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let store = store.to_str().unwrap();
    let run = ["ycsb", "--db", store, "--records", "10", "--operations", "10", "--warmup", "0"];
    assert_eq!(wattle(&run).status.code(), Some(0));
    let (_folder, trace) = small_trace("1,R\n2,R\n");
    for arguments in [
        vec!["verify", store],
        vec!["stat", store],
        vec!["stat", "--format", "json", store],
        vec!["simulate", "--list-policies"],
        vec!["simulate", "--trace", &trace, "--policy", "lru", "--cache", "1"],
        run.to_vec(),
    ] {
        let full = std::fs::File::create("/dev/full").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_wattle"));
        let output = command.args(&arguments).stdout(full).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {error}");
        assert!(error.contains("error: writing the result: No space left"), "{error}");
    }
    // The store was closed all the same.
    assert_eq!(wattle(&["verify", store]).status.code(), Some(0));
}

#[test]
fn loads_that_the_device_has_no_room_for_are_refused_before_they_begin() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (absent, empty, other) = (path("new/deep/store"), path("empty"), path("other"));
    std::fs::create_dir(&empty).unwrap();
    // A store that is there and has no data.
    let mut load = Command::new(env!("CARGO_BIN_EXE_wattle"));
    assert!(load.args(["load", &other]).stdin(Stdio::null()).status().unwrap().success());
    for (arguments, parts) in [
        ("tpcb --scale 100000", ["loading 100,000 branches takes about", "are free at"]),
        (
            "tatp --subscribers 4294967296",
            ["loading 4,294,967,296 subscribers takes about", "are free at"],
        ),
        (
            "ycsb --records 4294967296 --value-size 1GiB",
            ["loading 4,294,967,296 records takes about", "are free"],
        ),
        ("tpcc --warehouses 65534", ["loading 65,534 warehouses takes about", "are free at"]),
    ] {
        for store in [&absent, &empty, &other] {
            let words: Vec<_> = arguments.split(' ').chain(["--db", store]).collect();
            refused(&words, &parts);
        }
        // Existing stores are unchanged, and there are no new ones.
        assert!(!folder.path().join("new").exists(), "{arguments} left a store");
        assert_eq!(folder.path().join("empty").read_dir().unwrap().count(), 0, "{arguments}");
        assert_eq!(wattle(&["verify", &other]).status.code(), Some(0), "{arguments}");
    }
}

#[test]
fn a_refusal_before_the_load_leaves_no_store() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (absent, empty) = (path("new/deep/store"), path("empty"));
    std::fs::create_dir(&empty).unwrap();
    for (arguments, parts) in [
        (
            "--pool 256KiB --threads 600",
            ["--threads 600 are too many", "serves at most", "larger --pool"],
        ),
        ("--pool 4KiB", ["pool", "too small", "minimum"]),
        ("--policy astrology", ["astrology", "watt", "random"]),
        ("--policy watt:moons=3", ["moons=3", "epochs", "write_weight"]),
        ("--report /no/such/folder/x", ["--report", "/no/such/folder/x", "cannot be created"]),
        ("--samples /no/such/folder/x", ["--samples", "/no/such/folder/x", "cannot be created"]),
        ("--record-trace /no/such/x", ["--record-trace", "/no/such/x", "cannot be created"]),
    ] {
        for subcommand in ["ycsb", "tpcc", "tpcb", "tatp"] {
            for store in [&absent, &empty] {
                let words = [subcommand].into_iter().chain(arguments.split(' '));
                refused(&words.chain(["--db", store]).collect::<Vec<_>>(), &parts);
            }
            assert!(!folder.path().join("new").exists(), "{subcommand} {arguments}");
            let left = folder.path().join("empty").read_dir().unwrap().count();
            assert_eq!(left, 0, "{subcommand} {arguments}");
        }
    }
}

#[test]
fn missing_and_unknown_subcommands_and_paths_are_refused() {
    refused(&["frobnicate"], &["frobnicate", "--help lists the subcommands"]);
    for subcommand in ["verify", "stat", "dump", "compact"] {
        refused(&[subcommand], &["PATH", "not provided"]);
        refused(&[subcommand, "/no/such/store"], &["/no/such/store", "not a Wattle store"]);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        refused(&[subcommand, path], &[path, "not a Wattle store", "empty"]);
        assert_eq!(folder.path().read_dir().unwrap().count(), 0, "nothing was created");
        std::fs::write(folder.path().join("notes"), "x").unwrap();
        refused(&[subcommand, path], &[path, "not a Wattle store", "other contents"]);
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("notes"), "x").unwrap();
    let path = folder.path().to_str().unwrap();
    refused(&["ycsb", "--db", path], &[path, "not a Wattle store"]);
    // A place below a file.
    let below = folder.path().join("notes/store");
    let path = below.to_str().unwrap();
    refused(&["ycsb", "--db", path], &[path, "Not a directory"]);
    refused(&["verify", path], &[path]);
    refused(&["load"], &["PATH", "not provided"]);
    refused(&["probe", "/no/such/folder"], &["/no/such/folder", "not a directory"]);
    refused(
        &["probe", "/tmp", "--report", "/no/such/folder/x"],
        &["--report", "/no/such/folder/x"],
    );
    refused(&["probe", "/", "--size", "5"], &["--size 5", "at least 1MiB"]);
    refused(&["probe", "/", "--depths", "1,0"], &["--depths", "0", "1..=1024"]);
    refused(&["verify", "/", "--pool", "8000GiB"], &["--pool", "8000GiB", "of memory"]);
    refused(
        &["verify", "/", "--io", "memory"],
        &["memory", "possible values: uring, threads, buffered"],
    );
}

#[test]
fn help_shows_units_and_defaults() {
    let output = wattle(&["ycsb", "--help"]);
    assert_eq!(output.status.code(), Some(0));
    let help = String::from_utf8(output.stdout).unwrap();
    for flag in [
        "--db",
        "--pool",
        "--threads",
        "--tasks",
        "--pin",
        "--duration",
        "--operations",
        "--warmup",
        "--durability",
        "--log",
        "--policy",
        "--evictors",
        "--io",
        "--seed",
        "--format",
        "--samples",
        "--report",
        "--workload",
        "--read",
        "--update",
        "--insert",
        "--scan",
        "--rmw",
        "--records",
        "--fields",
        "--field-size",
        "--value-size",
        "--key-size",
        "--distribution",
        "--theta",
    ] {
        assert!(help.contains(flag), "{flag} is not in the help");
    }
    for default in ["256MiB", "[default: 2s]", "Default: 10s", "1000000", "Default: 0.99"] {
        assert!(help.contains(default), "{default} is not in the help");
    }
    for subcommand in ["verify", "stat", "compact", "dump", "load", "probe"] {
        assert_eq!(wattle(&[subcommand, "--help"]).status.code(), Some(0));
    }
    assert_eq!(wattle(&["--version"]).status.code(), Some(0));
}

#[test]
fn no_arguments_at_all_are_refused() {
    let output = wattle(&[]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("Usage: wattle") && error.contains("Moves pages"), "{error}");
    let sentence = error.lines().last().expect("a sentence");
    assert!(sentence.starts_with("error: ") && sentence.contains("ycsb, tpcc, tpcb"), "{error}");
}

#[test]
fn a_name_that_is_nearly_right_gets_a_suggestion() {
    refused(&["ycbs"], &["'ycbs'", "did you mean ycsb?"]);
    refused(&["ycsb", "--recods", "5"], &["--recods", "did you mean --records?"]);
    refused(&["ycsb", "--durability", "gruop"], &["gruop", "did you mean group?"]);
    refused(&["completions", "bsh"], &["bash"]);
}

#[test]
fn numbers_sizes_and_times_have_units() {
    for arguments in [
        "ycsb --records 1k --duration 1h --pool 64MB --operations 2e3 --help",
        "tatp --subscribers 1_000 --warmup 250us --help",
    ] {
        let arguments: Vec<_> = arguments.split(' ').collect();
        assert_eq!(wattle(&arguments).status.code(), Some(0), "{arguments:?}");
    }
    refused(&["ycsb", "--records", "1.5"], &["1e6"]);
    refused(&["ycsb", "--records", "0"], &["0 is not in 1..="]);
}

#[test]
fn completions_and_manual_pages_name_every_subcommand() {
    let subcommands = ["ycsb", "tpcc", "verify", "compact", "simulate", "experiment"];
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let out = wattle(&["completions", shell]);
        assert_eq!(out.status.code(), Some(0));
        let script = String::from_utf8(out.stdout).unwrap();
        for name in subcommands {
            assert!(script.contains(name), "{name} in the script of {shell}");
        }
        assert!(script.contains("log-limit"), "{shell}");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("man");
    assert_eq!(wattle(&["man", path.to_str().unwrap()]).status.code(), Some(0));
    let page = |name: &str| std::fs::read_to_string(path.join(name)).expect("a page");
    for name in subcommands {
        assert!(page("wattle.1").contains(&format!("wattle\\-{name}(1)")), "{name}");
        assert!(page(&format!("wattle-{name}.1")).contains(".SH OPTIONS"), "{name}");
    }
}

/// A folder with a small trace in it, and the path of the trace.
fn small_trace(text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("small.csv");
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (folder, path)
}

#[test]
fn simulate_refuses_bad_input_and_says_what_is_accepted() {
    let (_folder, path) = small_trace("1,R\n2,W\n3,R\n");
    for (arguments, parts) in [
        (&["--policy", "astrology"][..], &["astrology", "lru", "opt"][..]),
        (&["--policy", "clock:hands=2"], &["hands", "ref_at_load"]),
        (&["--policy", "clock:ref_at_load=2"], &["ref_at_load", "0 or 1"]),
        (&["--normalise", "nothing"], &["nothing", "lru"]),
        (&["--cache", "0"], &["\"0\"", "above 0", "5%"]),
        (&["--cache", "1,x%"], &["x%", "5%"]),
        (&["--cache", "4"], &["4 pages", "3 different pages", "at most 3"]),
        (&["--read-cost", "0"], &["--read-cost", "above 0"]),
        (&["--asymmetry", "fast"], &["--asymmetry", "fast", "above 0"]),
        (&["--concurrency", "0"], &["--concurrency", "1.."]),
        (&["--format", "xml"], &["xml", "text, json, csv"]),
        (&["--pinned", "1"], &["--pinned", "from 0 to 0.9"]),
        (&["--policy", "clock:update=now"], &["update", "fix or unfix or both or full"]),
        (&["--figures", "/dev/null"], &["--figures", "is a file; give a folder"]),
    ] {
        let words: Vec<&str> =
            ["simulate", "--trace", &path].into_iter().chain(arguments.iter().copied()).collect();
        refused(&words, parts);
    }
    let two = ["--policy", "lru", "fifo", "--cache", "2", "--io-trace", "/dev/null"];
    refused(&[&["simulate", "--trace", &path][..], &two].concat(), &["--io-trace", "not of 2"]);
    let unknown = ["--trace-format", "tar"];
    refused(&[&["simulate", "--trace", &path][..], &unknown].concat(), &["tar", "auto, page, arc"]);
    refused(&["simulate"], &["--trace", "not provided"]);
    refused(&["simulate", "--trace", "/no/such/trace.csv"], &["/no/such/trace.csv"]);
    let (_folder, path) = small_trace("1,R\n2\n");
    refused(&["simulate", "--trace", &path], &["small.csv", "line 2", "page,R"]);
    let (_folder, path) = small_trace("");
    refused(&["simulate", "--trace", &path], &["small.csv", "no access"]);
}

#[test]
fn simulate_repeats_counts_traces_and_records_what_reaches_the_device() {
    let lines: String = (0..600)
        .map(|at| format!("{},{}\n", at * at % 41, if at % 3 == 0 { "W" } else { "R" }))
        .collect();
    let (folder, path) = small_trace(&lines);
    let log = folder.path().join("log.fio");
    let log = log.to_str().unwrap();
    let text = |arguments: &[&str]| {
        let output = wattle(&[&["simulate", "--trace"][..], arguments].concat());
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let repeated = ["--policy", "random", "lru", "--cache", "10", "--repeat", "5"];
    let shown = text(&[&[&*path][..], &repeated].concat());
    assert!(shown.contains("means of 5 replays") && shown.contains(" +- "), "{shown}");
    let csv = text(&[&[&*path][..], &repeated, &["--format", "csv"]].concat());
    let field = |line: &str, back: usize| line.split(',').nth_back(back).unwrap().to_owned();
    let rows: Vec<&str> = csv.lines().skip(1).collect();
    // LRU does the same for every seed, random replacement does not.
    assert_eq!((field(rows[0], 4), field(rows[1], 3)), ("5".to_owned(), "0.0".to_owned()), "{csv}");
    assert_ne!(field(rows[0], 3), "0.0", "{csv}");
    let statistics = text(&[&path, "--statistics"]);
    assert!(statistics.contains("600") && statistics.contains("33.3 %"), "{statistics}");
    let arguments = ["--policy", "lru", "--cache", "10", "--io-trace", log, "--format", "json"];
    let json: serde_json::Value =
        serde_json::from_str(&text(&[&[&*path][..], &arguments].concat())).unwrap();
    let replayed = text(&[log, "--statistics", "--format", "json"]);
    let replayed: serde_json::Value = serde_json::from_str(&replayed).unwrap();
    let (row, trace) = (&json["rows"][0], &replayed["traces"][0]);
    let requests = row["reads"].as_u64().unwrap() + row["writes"].as_u64().unwrap();
    assert_eq!(trace["accesses"], requests);
    let written = trace["write_share"].as_f64().unwrap() * requests as f64;
    assert_eq!(written.round() as u64, row["writes"].as_u64().unwrap());
    assert!(row["write_runs"].as_u64().unwrap() <= row["writes"].as_u64().unwrap());
}

#[test]
fn simulate_does_not_write_its_report_over_a_trace() {
    let text = "1,R\n2,W\n3,R\n";
    let (folder, trace) = small_trace(text);
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::os::unix::fs::symlink(&trace, path("symbolic.html")).unwrap();
    std::os::unix::fs::symlink(folder.path(), path("folder")).unwrap();
    std::fs::hard_link(&trace, path("hard.html")).unwrap();
    for report in ["small.csv", "folder/small.csv", "folder/symbolic.html", "hard.html"] {
        // No other trace is read before.
        let report = path(report);
        let words = ["simulate", "--trace", "/no/such/trace.csv", &trace, "--report", &report];
        refused(&words, &["--trace and --report are both", &report, "file of its own"]);
        let link = ["simulate", "--trace", &report, "--cache", "1", "--report", &trace];
        refused(&link, &["--trace and --report are both", &trace]);
    }
    assert_eq!(std::fs::read_to_string(&trace).unwrap(), text);
    let report = path("report.html");
    let good = ["simulate", "--trace", &trace, "--cache", "1", "--report", &report];
    // Once more over the old report, and nowhere.
    for report in [&report, &report, "/dev/null"] {
        assert_eq!(wattle(&[&good[..6], &[report]].concat()).status.code(), Some(0));
    }
}

#[test]
fn simulate_writes_its_figures_and_holds_pages() {
    let access =
        |at: u64| format!("{},{}\n", at * at % 97, if at.is_multiple_of(3) { "W" } else { "R" });
    let (folder, trace) = small_trace(&(0..3000).map(access).collect::<String>());
    let figures = folder.path().join("figures");
    let words = ["simulate", "--trace", &trace, "--cache", "10,20", "--policy", "fifo", "loop"];
    let csv = |more: &[&str]| {
        let output = wattle(&[&words[..], &["--format", "csv"], more].concat());
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        let row = |line: &str| line.split(',').take(6).collect::<Vec<_>>().join(",");
        text.lines().skip(1).map(row).collect::<Vec<_>>()
    };
    let misses = |row: &String| row.split(',').nth(4).unwrap().to_owned();
    let drawn = csv(&["--figures", figures.to_str().unwrap(), "--repeat", "2"]);
    assert_eq!(misses(&drawn[0]), misses(&drawn[1]), "FIFO and LOOP are one policy");
    let index = std::fs::read_to_string(figures.join("index.csv")).unwrap();
    assert!(index.contains("Seed") || index.contains("seeds 1 to 2"), "{index}");
    let named: Vec<&str> =
        index.lines().skip(1).map(|line| line.split(',').next().unwrap()).collect();
    assert!(named.iter().filter(|name| name.ends_with(".svg")).count() >= 4, "{index}");
    for name in named {
        let text = std::fs::read_to_string(figures.join(name)).unwrap();
        let begins = if name.ends_with(".svg") { "<svg xmlns=" } else { "" };
        assert!(text.starts_with(begins) && text.len() > 20, "{name}");
    }
    // Pages that cannot leave: FIFO asks for them again, LOOP goes on.
    let pinned = csv(&["--pinned", "0.3"]);
    assert_ne!(misses(&pinned[0]), misses(&pinned[1]), "{pinned:?}");
    assert_eq!(pinned, csv(&["--pinned", "0.3"]));
}

#[test]
fn simulate_prints_one_line_for_each_trace_cache_and_policy() {
    let (_folder, path) = small_trace("1,R\n2,W\n3,R\n1,R\n2,R\n3,W\n");
    let run = |format: &str| {
        let words = ["simulate", "--trace", &path, "--policy", "lru", "fifo", "--cache", "2,3"];
        let output = wattle(&[&words[..], &["--format", format]].concat());
        assert_eq!(output.status.code(), Some(0));
        String::from_utf8(output.stdout).unwrap()
    };
    let csv = run("csv");
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines.len(), 5);
    assert!(lines[0].starts_with("trace,cache_pages,policy,accesses,misses,reads,writes,"));
    assert!(lines[1].starts_with("small,2,lru,6,6,6,2,1,2200.0,"), "{csv}");
    assert!(lines[4].starts_with("small,3,fifo,6,3,3,2,2,1900.0,"), "{csv}");
    assert!(run("json").contains("\"writes_at_end\""));
    assert!(run("text").contains("cache of 2 pages"));
    let words = ["simulate", "--trace", &path, "--policy", "for", "opt", "--cache", "2", "--bound"];
    let text = String::from_utf8(wattle(&words).stdout).unwrap();
    assert!(text.contains("for: O(cache log trace) per miss, as published"), "{text}");
    assert!(text.contains("no policy costs less than") && !text.contains("opt: "), "{text}");
    let csv = String::from_utf8(wattle(&[&words[..], &["--format", "csv"]].concat()).stdout);
    let lines: Vec<String> = csv.unwrap().lines().map(str::to_owned).collect();
    let column = |name: &str| lines[0].split(',').position(|column| column == name).unwrap();
    assert!(lines[0].contains(",least_cost,plan_cost,") && lines.len() == 3, "{lines:?}");
    let cost = |line: &str| line.split(',').nth(8).unwrap().parse::<f64>().unwrap();
    let least = lines[2].split(',').nth(column("least_cost")).unwrap().parse::<f64>().unwrap();
    assert!(least > 0.0 && least <= cost(&lines[2]) && least <= cost(&lines[1]), "{lines:?}");
    let output = wattle(&["simulate", "--list-policies"]);
    assert!(String::from_utf8(output.stdout).unwrap().contains("ref_at_load"));
}

/// The reader of standard error may close it, or its device may be full: the run has its result
/// all the same.
#[test]
fn a_run_goes_on_when_standard_error_cannot_be_written() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut errors: Vec<Stdio> = vec![writer.into()];
    if let Ok(full) = std::fs::File::create("/dev/full") {
        errors.push(full.into());
    }
    for error in errors {
        let folder = tempfile::tempdir().unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_wattle"))
            .args(["ycsb", "--records", "1000", "--pool", "16MiB", "--warmup", "0"])
            .args(["--duration", "1500ms", "--report"])
            .arg(folder.path().join("page.html"))
            .env("TMPDIR", folder.path())
            .stdout(Stdio::piped())
            .stderr(error)
            .spawn()
            .unwrap();
        let begun = std::time::Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if begun.elapsed() > std::time::Duration::from_secs(60) {
                child.kill().unwrap();
                panic!("the run does not end");
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        };
        assert_eq!(status.code(), Some(0));
        let mut text = String::new();
        child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        assert!(text.contains("operations/s"), "{text}");
        assert!(std::fs::metadata(folder.path().join("page.html")).unwrap().len() > 1000);
    }
}

/// A reader that closes the pipe is no failure of the run, and the page of `--report` is
/// there.
#[test]
fn a_report_is_written_if_the_result_has_no_reader() {
    let folder = tempfile::tempdir().unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = Command::new(env!("CARGO_BIN_EXE_wattle"))
        .args(["ycsb", "--records", "1000", "--pool", "16MiB", "--warmup", "0"])
        .args(["--duration", "100ms", "--report"])
        .arg(folder.path().join("page.html"))
        .env("TMPDIR", folder.path())
        .stdout(writer)
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(0));
    assert!(std::fs::metadata(folder.path().join("page.html")).unwrap().len() > 1000);
}

#[test]
fn the_policies_of_the_engine_are_listed_with_their_parameters() {
    let listed = |words: &[&str]| {
        let output = wattle(words);
        assert_eq!(output.status.code(), Some(0), "{words:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let list = listed(&["--list-policies"]);
    for info in ::wattle::policies() {
        let line = list.lines().find(|line| line.split(' ').next() == Some(info.name));
        assert!(line.is_some_and(|line| line.contains(info.summary)), "{} in {list}", info.name);
        for parameter in info.parameters {
            assert!(list.contains(&parameter.to_string()), "{parameter} in {list}");
        }
    }
    for subcommand in ["ycsb", "tpcc", "tpcb", "tatp"] {
        assert_eq!(listed(&[subcommand, "--policy", "help"]), list);
    }
}
