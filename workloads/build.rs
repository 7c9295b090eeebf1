//! Tells the program the commit that it is built from. Only for release builds: others would be
//! compiled again after each commit.

use std::process::Command;

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let mut commit = "unknown".to_owned();
    if std::env::var("PROFILE").is_ok_and(|profile| profile == "release") {
        let head = git(&["rev-parse", "--symbolic-full-name", "HEAD"]);
        for name in ["HEAD", "packed-refs"].into_iter().chain(head.as_deref()) {
            if let Some(path) = git(&["rev-parse", "--git-path", name])
                && std::path::Path::new(&path).exists()
            {
                println!("cargo::rerun-if-changed={path}");
            }
        }
        if let Some(found) = git(&["rev-parse", "--short=12", "HEAD"]) {
            commit = found;
        }
    }
    println!("cargo::rustc-env=WATTLE_COMMIT={commit}");
}
