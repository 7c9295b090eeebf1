//! Creating a runtime takes descriptors. Without enough of them it is an error, and none is leaked.

use super::runtime::{DESCRIPTORS, new_runtime, probe, start_runtime};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::{fs::File, os::fd::AsRawFd, process::Command};

const CHILD: &str = "WATTLE_RUNTIME_CHILD";

/// Descriptors that are open.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("a list").count()
}

fn limit(descriptors: u64) {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let limit = Rlimit { current: Some(descriptors), maximum };
    setrlimit(Resource::Nofile, limit).expect("below the greatest");
}

#[test]
#[ignore = "the child process of the other test"]
fn child_with_few_descriptors() {
    if std::env::var(CHILD).is_err() || probe().is_err() {
        return;
    }
    let mut made = 0;
    for more in 0..12 {
        let before = descriptors();
        let free = File::open("/dev/null").expect("a descriptor").as_raw_fd() as u64;
        limit(free + more);
        let runtime = new_runtime(8);
        let started = start_runtime(8, async { 7 });
        limit(1000);
        match (runtime, started) {
            (Ok(runtime), Ok(7)) => {
                assert_eq!(runtime.block_on(async { 5 }), 5);
                let taken = descriptors() - before;
                assert!(taken < DESCRIPTORS, "a runtime takes {taken} descriptors");
                made += 1;
            }
            (Err(runtime), Err(started)) => {
                for error in [runtime, started] {
                    assert_eq!(error.raw_os_error(), Some(libc::EMFILE), "{error}");
                }
            }
            // The first runtime took the descriptors that the second one lacked.
            (Ok(_), Err(error)) => assert_eq!(error.raw_os_error(), Some(libc::EMFILE), "{error}"),
            (runtime, _) => panic!("{:?}", runtime.err()),
        }
        assert_eq!(descriptors(), before, "with {more} descriptors");
    }
    assert!(made > 0);
    println!("made {made}");
}

#[test]
fn a_runtime_without_descriptors_is_an_error_and_leaks_none() {
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["io::runtime_tests::child_with_few_descriptors", "--exact", "--ignored"])
        .args(["--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .output()
        .expect("a process");
    let said = format!(
        "{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success() && !said.contains("panicked"), "{said}");
}
