//! Starts the service as a process and talks to it over TCP, as a client would.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};
use ureq::Agent;

struct Service {
    process: Child,
    address: String,
}

impl Service {
    fn start(store: &std::path::Path) -> Service {
        let mut process = Command::new(env!("CARGO_BIN_EXE_http-service"))
            .arg("127.0.0.1:0")
            .arg(store)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the service starts");
        let mut line = String::new();
        let output = process.stdout.take().expect("its output");
        BufReader::new(output).read_line(&mut line).expect("its first line");
        let address = line.trim().strip_prefix("listening on ").expect("an address").to_owned();
        Service { process, address }
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.address)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // As in a crash: the signal cannot be caught. It may have ended already.
        let _ended = self.process.kill();
        let _code = self.process.wait();
    }
}

/// Answers with an error code are answers.
fn agent() -> Agent {
    Agent::config_builder().http_status_as_error(false).build().into()
}

fn text(answer: ureq::http::Response<ureq::Body>) -> (u16, String) {
    let status = answer.status().as_u16();
    (status, answer.into_body().read_to_string().expect("a body"))
}

fn get(agent: &Agent, url: String) -> (u16, String) {
    text(agent.get(url).call().expect("an answer"))
}

#[test]
fn records_are_written_read_listed_moved_and_survive_a_kill() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = directory.path().join("store");
    let agent = agent();
    let service = Service::start(&store);
    let put = |path: &str, value: &str| {
        text(agent.put(service.url(path)).send(value).expect("an answer")).0
    };

    assert_eq!(get(&agent, service.url("/records/a")).0, 404);
    assert_eq!(put("/records/account-a", "70"), 204);
    assert_eq!(put("/records/account-b", "5"), 204);
    assert_eq!(put("/records/other", "x"), 204);
    assert_eq!(get(&agent, service.url("/records/account-a")), (200, "70".to_owned()));
    let listed = get(&agent, service.url("/records?prefix=account-"));
    assert_eq!(listed, (200, "account-a\naccount-b\n".to_owned()));

    let transfer = |amount: u64| {
        let path = format!("/transfer?from=account-a&to=account-b&amount={amount}");
        text(agent.post(service.url(&path)).send_empty().expect("an answer")).0
    };
    assert_eq!(transfer(30), 200);
    assert_eq!(transfer(41), 422, "more than there is");
    let removed = text(agent.delete(service.url("/records/other")).call().expect("an answer")).0;
    assert_eq!(removed, 204);
    assert_eq!(put(&format!("/records/{}", "k".repeat(2000)), "x"), 400, "too long a key");

    // Many at once: every acknowledged change is there after the kill.
    std::thread::scope(|scope| {
        for client in 0..8 {
            let (agent, service) = (&agent, &service);
            scope.spawn(move || {
                for round in 0..20 {
                    let path = service.url(&format!("/records/many-{client}-{round}"));
                    let (status, _) = text(agent.put(path).send("value").expect("an answer"));
                    assert_eq!(status, 204);
                }
            });
        }
    });
    drop(service);

    let service = Service::start(&store);
    assert_eq!(get(&agent, service.url("/records/account-a")), (200, "40".to_owned()));
    assert_eq!(get(&agent, service.url("/records/account-b")), (200, "35".to_owned()));
    assert_eq!(get(&agent, service.url("/records/other")).0, 404);
    let (_, many) = get(&agent, service.url("/records?prefix=many-&limit=1000"));
    assert_eq!(many.lines().count(), 160);
}
