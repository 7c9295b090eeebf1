//! Three processes of the example `cluster`, killed under load.
//!
//! In each round clients write and read; a node is killed with SIGKILL, often the leader, sometimes
//! two or all three at once, and started again while the load goes on. In some rounds the node
//! stays down until the others have purged what it needs, so that it gets a snapshot. After each
//! round the test checks that
//!
//! - the history of each register is linearizable (`linear.rs`),
//! - the nodes have equal records, each acknowledged write among them, and nothing that no client
//!   has written.
//!
//! `WATTLE_RAFT_CLUSTER_SEED` repeats the decisions of a run, not its timing, and
//! `WATTLE_RAFT_CLUSTER_ROUNDS` makes it longer.

#[path = "../../examples/cluster/client.rs"]
mod client;
mod linear;
mod load;
mod nodes;
#[path = "../../examples/cluster/protocol.rs"]
mod protocol;

use linear::Outcome;
use load::{CLIENTS, Load, Seen};
use nodes::Cluster;
use protocol::{Answer, Call, Status};
use rand::{Rng, SeedableRng, rngs::StdRng, seq::SliceRandom};
use std::{
    collections::BTreeMap,
    env,
    io::{ErrorKind, Read, Write},
    net::{Shutdown, TcpStream},
    str::FromStr,
    thread,
};

const SEED: &str = "WATTLE_RAFT_CLUSTER_SEED";
const ROUNDS: &str = "WATTLE_RAFT_CLUSTER_ROUNDS";
/// Acknowledged writes before, during and after the time in which a node is down.
const WRITES: u64 = 100;

fn number<T: FromStr>(name: &str) -> Option<T> {
    let text = env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text}")))
}

#[test]
fn three_nodes_survive_kills_and_stay_linearizable() {
    let seed = number(SEED).unwrap_or_else(|| rand::rng().random());
    let rounds = number(ROUNDS).unwrap_or(5);
    println!("{SEED}={seed} {ROUNDS}={rounds}");
    let mut random = StdRng::seed_from_u64(seed);
    let directory = tempfile::tempdir().expect("a directory");
    let mut cluster = Cluster::start(directory.path());
    let mut once = Once::default();
    for round in 0..rounds {
        let load = Load::new(round, cluster.addresses());
        thread::scope(|scope| {
            // Also after a panic, or the clients would go on.
            let _stop = Stop(&load);
            for client in 0..CLIENTS {
                let (load, seed) = (&load, random.random());
                scope.spawn(move || load.run(client, seed));
            }
            Play { cluster: &mut cluster, load: &load, random: &mut random }.round(round);
        });
        cluster.wait("reads of all registers", |_| load.read_all().then_some(()));
        let records = equal_records(&mut cluster);
        let writes = load.acknowledged();
        let seen = load.into_seen();
        println!("round {round}: {writes} acknowledged writes, {seen}");
        check_registers(round, &seen, &records);
        once.check(round, seen, &records);
    }
}

#[test]
fn clients_of_the_command_line_and_connections_that_send_nonsense() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut cluster = Cluster::start(directory.path());
    let set = |cluster: &Cluster| cluster.client(&["set", "color", "green"]).is_ok().then_some(());
    cluster.wait("a leader that takes a write", set);
    // Messages that are too long, of no kind, and cut.
    let nonsense: [&[u8]; 4] = [&[0xff; 8], &[4, 0, 0, 0, 0xff, 0xff, 0xff, 0xff], b"GET /", &[9]];
    for address in cluster.addresses() {
        for bytes in nonsense {
            let mut stream = TcpStream::connect(address).expect("the node listens");
            stream.write_all(bytes).expect("the node reads");
            stream.set_read_timeout(Some(nodes::TIMEOUT)).expect("a time");
            let mut answer = Vec::new();
            // The node closes the connection, which is an error if it has not read all bytes.
            let ended = stream.shutdown(Shutdown::Write);
            match ended.and_then(|()| stream.read_to_end(&mut answer)) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    panic!("the connection stays open after {bytes:x?}")
                }
                _ => assert_eq!(answer, b"", "an answer to {bytes:x?}"),
            }
        }
    }
    let mut client = |arguments: &[&str]| {
        // The nodes may elect another leader meanwhile: each command is tried until it has an end.
        let open = ["lead", "quorum", "unknown"];
        cluster.wait("an answer to a command", |cluster| match cluster.client(arguments) {
            Err(error) if open.iter().any(|word| error.contains(word)) => None,
            answer => Some(answer),
        })
    };
    assert_eq!(client(&["get", "color"]).as_deref(), Ok("green\n"));
    assert_eq!(client(&["get", "size"]).unwrap_err(), "error: there is no such key\n");
    let error = client(&["swap", "color", "red", "--expected", "blue"]).unwrap_err();
    assert_eq!(error, "error: not done: the value is Some(\"green\")\n");
    match client(&["swap", "color", "red", "--expected", "green"]) {
        Ok(text) => assert_eq!(text, ""),
        // Done by the first of two tries.
        Err(error) => assert!(error.contains("the value is Some(\"red\")"), "{error}"),
    }
    assert_eq!(client(&["get", "color"]).as_deref(), Ok("red\n"));
    cluster.wait("a leader in the states of three nodes", |cluster| {
        let status = cluster.client(&["status"]).expect("the nodes answer");
        assert_eq!(status.lines().count(), 3, "{status}");
        (status.matches(": leader of term").count() == 1).then_some(())
    });
}

struct Stop<'l>(&'l Load);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// The events of a round.
struct Play<'p> {
    cluster: &'p mut Cluster,
    load: &'p Load,
    random: &'p mut StdRng,
}

impl Play<'_> {
    fn round(&mut self, round: usize) {
        self.write(WRITES);
        let leader = self.cluster.wait("a leader", Cluster::leader);
        let mut nodes: Vec<_> = (0..self.cluster.len()).collect();
        nodes.shuffle(self.random);
        if self.random.random_ratio(2, 3) {
            nodes.retain(|&node| node != leader);
            nodes.insert(0, leader);
        }
        match round % 10 {
            1 | 6 => self.kill_until_purged(&nodes, round % 10 == 6),
            3 | 8 => self.kill_several(&nodes),
            _ => self.kill_one(nodes[0]),
        }
        self.write(WRITES);
    }

    /// Waits until this many more writes are acknowledged.
    fn write(&mut self, count: u64) {
        let (load, goal) = (self.load, self.load.acknowledged() + count);
        let done = |_: &Cluster| (load.acknowledged() >= goal).then_some(());
        self.cluster.wait("more acknowledged writes", done);
    }

    /// One node, sometimes again while it catches up.
    fn kill_one(&mut self, victim: usize) {
        self.cluster.kill(victim);
        self.write(WRITES);
        self.cluster.restart(victim);
        if self.random.random_ratio(1, 3) {
            self.kill_again(victim);
        }
    }

    fn kill_again(&mut self, victim: usize) {
        let some = self.random.random_range(0..WRITES);
        self.write(some);
        self.cluster.kill(victim);
        self.cluster.restart(victim);
    }

    /// Two or three nodes: what is left has no majority.
    fn kill_several(&mut self, nodes: &[usize]) {
        let victims = &nodes[..self.random.random_range(2..=nodes.len())];
        victims.iter().for_each(|&node| self.cluster.kill(node));
        victims.iter().for_each(|&node| self.cluster.restart(node));
    }

    /// One node, until the others have purged all entries that it could have. Perhaps again while
    /// it gets a snapshot.
    fn kill_until_purged(&mut self, nodes: &[usize], again: bool) {
        let (victim, others) = (nodes[0], &nodes[1..]);
        self.cluster.kill(victim);
        let states = |cluster: &Cluster| -> Option<Vec<Status>> {
            others.iter().map(|&node| cluster.status(node)).collect()
        };
        let now = self.cluster.wait("the states of the other nodes", states);
        let last = now.iter().map(|status| status.last_entry).max().flatten();
        self.cluster.wait("purged logs of the other nodes", |cluster| {
            states(cluster)?.iter().all(|status| status.purged > last).then_some(())
        });
        self.cluster.restart(victim);
        if again {
            self.kill_again(victim);
        }
        let status = self.cluster.wait("a node that has caught up", |cluster| {
            cluster.status(victim).filter(|status| status.applied > last)
        });
        // The first process may have got it before it was killed.
        assert!(again || status.installed > 0, "without a snapshot: {status:?}");
    }
}

/// The records of all nodes, which are equal, from the same entry.
fn equal_records(cluster: &mut Cluster) -> BTreeMap<String, String> {
    let mut nodes = cluster.wait("nodes with the same entries", |cluster| {
        let mut nodes = Vec::new();
        for node in 0..cluster.len() {
            match cluster.call(node, &Call::Records) {
                Some(Answer::Records(applied, records)) => nodes.push((applied, records)),
                _ => return None,
            }
        }
        nodes.iter().all(|(applied, _)| *applied == nodes[0].0).then_some(nodes)
    });
    let (applied, records) = nodes.swap_remove(0);
    for (_, others) in nodes {
        assert_eq!(records, others, "two nodes differ after entry {applied:?}");
    }
    records.into_iter().collect()
}

fn check_registers(round: usize, seen: &Seen, records: &BTreeMap<String, String>) {
    for (name, history) in &seen.registers {
        for operation in history {
            if let Outcome::Saw(Some(value)) = operation.outcome {
                assert!(
                    !seen.refused.contains(&value),
                    "{name}: {operation:?} saw a refused write"
                );
            }
        }
        if let Err(error) = linear::check(history) {
            panic!("round {round}, {name}, {} operations: {error}", history.len());
        }
        let last = history.last().expect("it was read at the end").outcome;
        let record = records.get(name).map(|value| value.parse().expect("a number"));
        assert_eq!(last, Outcome::Saw(record), "round {round}, {name}: the last read");
    }
}

/// The keys that were written once, of all rounds so far.
#[derive(Default)]
struct Once {
    acknowledged: BTreeMap<String, String>,
    unknown: BTreeMap<String, String>,
}

impl Once {
    fn check(&mut self, round: usize, seen: Seen, records: &BTreeMap<String, String>) {
        self.acknowledged.extend(seen.acknowledged);
        self.unknown.extend(seen.unknown);
        for (key, value) in &self.acknowledged {
            assert_eq!(records.get(key), Some(value), "round {round}: acknowledged {key}");
        }
        for (key, value) in records.iter().filter(|(key, _)| key.starts_with(load::ONCE)) {
            let written = self.acknowledged.get(key).or(self.unknown.get(key));
            assert_eq!(written, Some(value), "round {round}: {key} was never written");
        }
    }
}
