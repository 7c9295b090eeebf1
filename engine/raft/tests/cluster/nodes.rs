//! The processes of a cluster.

use crate::{
    client::Client,
    protocol::{Answer, Call, Status},
};
use std::{
    env, fs,
    fs::File,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// How long the cluster may take for anything: the device may stand still for a while.
const LONGEST_WAIT: Duration = Duration::from_secs(180);
/// Pause before something is looked at again.
const PAUSE: Duration = Duration::from_millis(50);
/// How long a client waits for an answer.
pub const TIMEOUT: Duration = Duration::from_secs(15);
/// Bytes of a node's output that a failure shows.
const SHOWN: usize = 4000;

/// A process with one node, or none while the node is down.
struct Node {
    id: u64,
    address: SocketAddr,
    directory: PathBuf,
    process: Option<Child>,
}

/// Three nodes.
pub struct Cluster {
    program: PathBuf,
    members: String,
    nodes: Vec<Node>,
}

/// The example, built as this test is.
fn program() -> PathBuf {
    let test = env::current_exe().expect("the path of this test");
    let profile = test.ancestors().nth(2).expect("target/PROFILE/deps/TEST");
    let target = profile.parent().expect("target/PROFILE");
    // A run of this test alone builds no examples. After `cargo test` this finds all done.
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--locked", "--example", "cluster", "--manifest-path"])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"))
        .arg("--target-dir")
        .arg(target)
        .status();
    assert!(built.expect("cargo starts").success(), "the example is not built");
    target.join("debug/examples/cluster")
}

/// Free addresses. All of 127.0.0.0/8 is this machine, and outgoing connections come from
/// 127.0.0.1. So no connection takes the port of a node that is down.
fn free_addresses() -> Vec<SocketAddr> {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let free = |number: u8| {
        let address = Ipv4Addr::new(127, 100 + number, high, low.clamp(1, 254));
        let listener = TcpListener::bind((address, 0)).expect("a free port");
        listener.local_addr().expect("its address")
    };
    (1..=3).map(free).collect()
}

impl Cluster {
    /// Starts three nodes with stores in this directory.
    pub fn start(directory: &Path) -> Cluster {
        let addresses = free_addresses();
        let ids = 1..=addresses.len() as u64;
        let members: Vec<_> =
            ids.clone().zip(&addresses).map(|(id, address)| format!("{id}={address}")).collect();
        let nodes = ids.zip(addresses).map(|(id, address)| Node {
            id,
            address,
            directory: directory.join(format!("node-{id}")),
            process: None,
        });
        let nodes = nodes.collect();
        let mut cluster = Cluster { program: program(), members: members.join(","), nodes };
        (0..cluster.nodes.len()).for_each(|node| cluster.restart(node));
        cluster
    }

    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(|node| node.address).collect()
    }

    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Ends a process as `kill -9` does.
    pub fn kill(&mut self, node: usize) {
        let node = &mut self.nodes[node];
        let mut process = node.process.take().expect("it runs");
        process.kill().expect("the process is ours");
        let status = process.wait().expect("the process is ours");
        let signal = std::os::unix::process::ExitStatusExt::signal(&status);
        assert_eq!(signal, Some(9), "node {} had ended before: {status}", node.id);
    }

    /// Starts the process of a node that is down.
    pub fn restart(&mut self, node: usize) {
        let Node { id, directory, process, .. } = &mut self.nodes[node];
        assert!(process.is_none(), "node {id} runs");
        fs::create_dir_all(&*directory).expect("a directory");
        let log = directory.join("output");
        let log = File::options().create(true).append(true).open(log).expect("a file");
        let errors = log.try_clone().expect("a file");
        // Small numbers, so that nodes purge and need snapshots in pieces after a second.
        let command = Command::new(&self.program)
            .args(["node", "--id", &id.to_string(), "--members", &self.members])
            .args(["--snapshot-entries", "100", "--keep-entries", "10", "--chunk-bytes", "4096"])
            .arg("--store")
            .arg(&*directory)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn();
        *process = Some(command.expect("the example starts"));
    }

    /// How far a node is. None if it does not answer.
    pub fn status(&self, node: usize) -> Option<Status> {
        match self.call(node, &Call::Status) {
            Some(Answer::Status(status)) => Some(status),
            _ => None,
        }
    }

    pub fn call(&self, node: usize, call: &Call) -> Option<Answer> {
        let connected = Client::connect(self.nodes[node].address, TIMEOUT);
        connected.and_then(|mut client| client.call(call)).ok()
    }

    /// Runs a client of the example, and gives its output or its error.
    pub fn client(&self, arguments: &[&str]) -> Result<String, String> {
        let command = Command::new(&self.program)
            .args(arguments)
            .env("CLUSTER_MEMBERS", &self.members)
            .stdin(Stdio::null())
            .output();
        let output = command.expect("the example starts");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        match output.status.success() {
            true => Ok(text(output.stdout)),
            false => Err(text(output.stderr)),
        }
    }

    /// The node that leads, as it says itself.
    pub fn leader(&self) -> Option<usize> {
        let led = |node| self.status(node).filter(|status| status.leader == Some(status.id));
        let leaders = (0..self.len()).filter_map(|node| Some((led(node)?.term, node)));
        leaders.max().map(|(_, node)| node)
    }

    /// Waits until this gives something.
    pub fn wait<T>(&mut self, what: &str, mut look: impl FnMut(&Cluster) -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Some(found) = look(self) {
                return found;
            }
            self.check_processes();
            let waited = start.elapsed();
            assert!(waited < LONGEST_WAIT, "after {waited:?}, not yet: {what}\n{}", self.report());
            thread::sleep(PAUSE);
        }
    }

    /// Nodes end only when they are killed.
    fn check_processes(&mut self) {
        for at in 0..self.nodes.len() {
            let node = &mut self.nodes[at];
            let ended = node.process.as_mut().and_then(|process| process.try_wait().transpose());
            if let Some(status) = ended {
                let (id, status) = (node.id, status.expect("the process is ours"));
                panic!("node {id} has ended: {status}\n{}", self.report());
            }
        }
    }

    /// The states of the nodes, and the ends of their outputs.
    pub fn report(&self) -> String {
        let mut report = String::new();
        for (at, node) in self.nodes.iter().enumerate() {
            let output = fs::read_to_string(node.directory.join("output")).unwrap_or_default();
            let end = output.char_indices().rev().nth(SHOWN).map_or(0, |(at, _)| at);
            report += &format!("{:?}\n{}\n", self.status(at), &output[end..]);
        }
        report
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for process in self.nodes.iter_mut().filter_map(|node| node.process.as_mut()) {
            // It may have ended, which the test has reported.
            if process.kill().is_ok() {
                drop(process.wait());
            }
        }
    }
}
