//! The header is that of the sources, and the example in C does what it says, with both libraries
//! and under AddressSanitizer.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// The files with items that C sees, in the order of the header.
const SOURCES: [&str; 8] =
    ["code", "options", "stats", "globals", "locals", "ffi/pointers", "ffi/engine", "ffi/session"];

fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn the_header_is_that_of_the_sources() {
    let config = cbindgen::Config::from_file(package().join("cbindgen.toml")).unwrap();
    let mut builder = cbindgen::Builder::new().with_config(config);
    for source in SOURCES.iter().chain(&["ffi/txn"]) {
        builder = builder.with_src(package().join(format!("src/{source}.rs")));
    }
    let mut made = Vec::new();
    builder.generate().expect("a header").write(&mut made);
    let made = String::from_utf8(made).unwrap();
    let path = package().join("include/wattle.h");
    if env::var_os("WATTLE_WRITE_HEADER").is_some() {
        fs::write(&path, &made).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == made,
        "include/wattle.h is not that of the sources: run \
         `WATTLE_WRITE_HEADER=1 cargo test -p wattle-capi` and commit it"
    );
}

/// The C compiler, unless there is none.
fn compiler() -> Option<String> {
    let name = env::var("CC").unwrap_or_else(|_| "cc".to_string());
    if Command::new(&name).arg("--version").output().is_ok_and(|found| found.status.success()) {
        return Some(name);
    }
    eprintln!("SKIPPED: there is no C compiler `{name}`, so the example in C is not tested");
    None
}

/// Where cargo puts the libraries of this package.
fn libraries() -> PathBuf {
    let program = env::current_exe().unwrap();
    let directory = program.parent().expect("the directory of the test");
    for name in ["libwattle_capi.a", "libwattle_capi.so"] {
        assert!(directory.join(name).exists(), "cargo made no {name} in {}", directory.display());
    }
    directory.to_owned()
}

fn shown(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!("{}\n{}", String::from_utf8_lossy(out), String::from_utf8_lossy(err))
}

/// Compiles the example with more arguments, runs it, and checks what it prints.
fn compile_and_run(compiler: &str, arguments: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("orders");
    let mut compile = Command::new(compiler);
    compile.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-g", "-o"]).arg(&program);
    compile.arg("-I").arg(package().join("include")).arg(package().join("examples/orders.c"));
    let compiled = compile.args(arguments).output().unwrap();
    assert!(compiled.status.success(), "{compile:?}: {}", shown(&compiled));
    let mut run = Command::new(&program);
    run.arg(directory.path().join("store")).arg(directory.path().join("backup"));
    let output = run.env("LD_LIBRARY_PATH", libraries()).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", shown(&output));
    let printed = String::from_utf8(output.stdout).unwrap();
    for line in ["o-1 is paid", "  o-3 = from a thread", "tree orders, commits counted", "done"] {
        assert!(printed.lines().any(|printed| printed == line), "no line {line:?}: {printed}");
    }
}

/// The arguments that link the static library.
fn static_library() -> Vec<String> {
    let library = libraries().join("libwattle_capi.a").display().to_string();
    [&library, "-lpthread", "-ldl", "-lm", "-lgcc_s"].map(str::to_string).to_vec()
}

#[test]
fn the_example_runs_with_the_shared_library() {
    let Some(compiler) = compiler() else { return };
    let place = format!("-L{}", libraries().display());
    compile_and_run(&compiler, &[&place, "-lwattle_capi", "-lpthread"]);
}

#[test]
fn the_example_runs_with_the_flags_of_pkg_config() {
    let Some(compiler) = compiler() else { return };
    let prefix = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(libraries(), prefix.path().join("lib")).unwrap();
    std::os::unix::fs::symlink(package().join("include"), prefix.path().join("include")).unwrap();
    let template = fs::read_to_string(package().join("wattle.pc.in")).unwrap();
    let place = prefix.path().display().to_string();
    let filled = template.replace("@PREFIX@", &place);
    let filled = filled.replace("@VERSION@", env!("CARGO_PKG_VERSION"));
    fs::write(prefix.path().join("wattle.pc"), filled).unwrap();
    let mut ask = Command::new("pkg-config");
    ask.env("PKG_CONFIG_PATH", &place).args(["--cflags", "--libs", "wattle"]);
    let Ok(output) = ask.output() else {
        return eprintln!("SKIPPED: there is no pkg-config");
    };
    assert!(output.status.success(), "{}", shown(&output));
    let flags = String::from_utf8(output.stdout).unwrap();
    let mut flags: Vec<&str> = flags.split_whitespace().collect();
    assert!(flags.contains(&"-lwattle_capi"), "{flags:?}");
    flags.push("-lpthread");
    compile_and_run(&compiler, &flags);
}

#[test]
fn the_example_runs_with_the_static_library() {
    let Some(compiler) = compiler() else { return };
    let arguments = static_library();
    compile_and_run(&compiler, &arguments.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn the_example_is_clean_under_address_sanitizer() {
    let Some(compiler) = compiler() else { return };
    let directory = tempfile::tempdir().unwrap();
    let probe = directory.path().join("probe.c");
    fs::write(&probe, "int main(void) { return 0; }\n").unwrap();
    let mut compile = Command::new(&compiler);
    compile.arg("-fsanitize=address,undefined").arg(&probe).arg("-o").arg(probe.with_extension(""));
    if !compile.output().unwrap().status.success() {
        eprintln!("SKIPPED: `{compiler}` has no -fsanitize=address");
        return;
    }
    let mut arguments = static_library();
    arguments.insert(0, "-fsanitize=address,undefined".to_string());
    arguments.insert(1, "-fno-sanitize-recover=all".to_string());
    compile_and_run(&compiler, &arguments.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn a_header_of_c_is_one_of_c_plus_plus_too() {
    let Some(compiler) = compiler() else { return };
    let mut check = Command::new(&compiler);
    check.args(["-x", "c++", "-fsyntax-only", "-Wall", "-Werror"]);
    let output = check.arg(package().join("include/wattle.h")).output().unwrap();
    if !output.status.success() && shown(&output).contains("cc1plus") {
        eprintln!("SKIPPED: `{compiler}` does not compile C++");
        return;
    }
    assert!(output.status.success(), "{}", shown(&output));
}
