//! Clients that write and read while nodes are killed, and the history of what they saw.

use crate::{
    client::Client,
    linear::{Kind, Operation, Outcome},
    nodes::TIMEOUT,
    protocol::{Answer, Call, Command, Reply},
};
use rand::{Rng, SeedableRng, rngs::StdRng};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::SocketAddr,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

/// Clients at a time.
pub const CLIENTS: u64 = 5;
/// Registers of a round.
const REGISTERS: u64 = 3;
/// The keys that are written once begin with this.
pub const ONCE: &str = "once-";
/// Pause after a call that found no leader.
const PAUSE: Duration = Duration::from_millis(20);

/// The observations of all clients.
#[derive(Default)]
pub struct Seen {
    /// The history of each register.
    pub registers: BTreeMap<String, Vec<Operation>>,
    /// Values that a node has refused to write: no client may see them.
    pub refused: BTreeSet<u64>,
    /// Keys that were written once, whose writes were acknowledged.
    pub acknowledged: BTreeMap<String, String>,
    /// Those of which no client knows whether they were written.
    pub unknown: BTreeMap<String, String>,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operations = || self.registers.values().flatten();
        let is_unknown = |operation: &&Operation| operation.outcome == Outcome::Unknown;
        write!(
            f,
            "{} operations on registers of which {} have an unknown outcome, {} single writes of \
             which {} have",
            operations().count(),
            operations().filter(is_unknown).count(),
            self.acknowledged.len() + self.unknown.len(),
            self.unknown.len(),
        )
    }
}

/// The state that the clients share.
pub struct Load {
    round: usize,
    addresses: Vec<SocketAddr>,
    /// Gives calls and returns their places in one order.
    clock: AtomicU64,
    acknowledged: AtomicU64,
    stop: AtomicBool,
    seen: Mutex<Seen>,
}

impl Load {
    pub fn new(round: usize, addresses: Vec<SocketAddr>) -> Load {
        Load {
            round,
            addresses,
            clock: AtomicU64::new(1),
            acknowledged: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            seen: Mutex::default(),
        }
    }

    /// How many writes were acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::SeqCst)
    }

    /// Ends the clients after the calls that they are in.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }

    pub fn into_seen(self) -> Seen {
        self.seen.into_inner().expect("no client has panicked")
    }

    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// A client, which ends after [`Load::stop`].
    pub fn run(&self, number: u64, seed: u64) {
        let mut random = StdRng::seed_from_u64(seed ^ number);
        let node = random.random_range(0..self.addresses.len());
        let mut caller = Caller { load: self, random, node, connection: None };
        let mut count = 0;
        while !self.stop.load(Ordering::SeqCst) {
            count += 1;
            // Different for all writes of a register.
            let value = count * CLIENTS + number;
            if caller.random.random_ratio(1, 5) {
                caller.put(format!("{ONCE}{}-{value}", self.round), value);
            } else {
                caller.operate(value);
            }
        }
    }

    /// Reads all registers, after the clients have ended. False if a read was not answered.
    pub fn read_all(&self) -> bool {
        let random = StdRng::seed_from_u64(self.now());
        let mut caller = Caller { load: self, random, node: 0, connection: None };
        (0..REGISTERS).all(|number| {
            // The first node may not lead, and name the one that does.
            let mut read = || caller.call_register(self.register(number), Kind::Read);
            read() || read()
        })
    }

    fn register(&self, number: u64) -> String {
        format!("register-{}-{number}", self.round)
    }
}

/// A client.
struct Caller<'l> {
    load: &'l Load,
    random: StdRng,
    /// The node that it asks next.
    node: usize,
    connection: Option<Client>,
}

impl Caller<'_> {
    /// Calls a node. No answer if the call failed. The second value says whether it was sent.
    fn call(&mut self, call: &Call) -> (Option<Answer>, bool) {
        // Some reads go to any node: one that does not lead must not answer with what it has.
        if matches!(call, Call::Read(_)) && self.random.random_ratio(1, 4) {
            let address =
                self.load.addresses[self.random.random_range(0..self.load.addresses.len())];
            let Ok(mut connection) = Client::connect(address, TIMEOUT) else {
                return (None, false);
            };
            return (connection.call(call).ok(), true);
        }
        if self.random.random_ratio(1, 50) {
            self.go_to(None);
        }
        let address = self.load.addresses[self.node];
        let connection = match self.connection.take() {
            Some(connection) => Ok(connection),
            None => Client::connect(address, TIMEOUT),
        };
        let Ok(mut connection) = connection else {
            self.go_to(None);
            return (None, false);
        };
        let Ok(answer) = connection.call(call) else {
            self.go_to(None);
            return (None, true);
        };
        self.connection = Some(connection);
        match &answer {
            Answer::NotLeader(leader) => {
                let address = leader.as_ref().and_then(|(_, address)| address.parse().ok());
                self.go_to(address);
            }
            Answer::Unknown(_) | Answer::Refused(_) => self.go_to(None),
            _ => {}
        }
        (Some(answer), true)
    }

    /// Asks this node next, or any.
    fn go_to(&mut self, address: Option<SocketAddr>) {
        let nodes = &self.load.addresses;
        let known = nodes.iter().position(|node| Some(*node) == address);
        self.node = known.unwrap_or_else(|| {
            thread::sleep(PAUSE);
            self.random.random_range(0..nodes.len())
        });
        self.connection = None;
    }

    /// Writes a key that no client writes again.
    fn put(&mut self, key: String, value: u64) {
        let padding = self.random.random_range(0..500);
        let text = format!("{value} {}", "x".repeat(padding));
        let command = Command::Set { key: key.clone(), value: text.clone() };
        let (answer, sent) = self.call(&Call::Write(command));
        let mut seen = self.load.seen.lock().expect("no client has panicked");
        match answer {
            Some(Answer::Written(before)) => {
                assert_eq!(before, Reply(None), "{key} was written twice");
                seen.acknowledged.insert(key, text);
                self.load.acknowledged.fetch_add(1, Ordering::SeqCst);
            }
            Some(Answer::NotLeader(_)) => {}
            None if !sent => {}
            Some(Answer::Unknown(_)) | None => {
                seen.unknown.insert(key, text);
            }
            answer => panic!("not the answer to a write: {answer:?}"),
        }
    }

    /// Reads or writes a register.
    fn operate(&mut self, value: u64) {
        let register = self.load.register(self.random.random_range(0..REGISTERS));
        let kind = match self.random.random_range(0..4) {
            0..2 => Kind::Read,
            2 => Kind::Set(value),
            _ => {
                let seen = self.load.seen.lock().expect("no client has panicked");
                // A value that it had, which it probably still has.
                let last = seen.registers.get(&register).and_then(|history| history.last());
                Kind::Swap(last.and_then(value_after), value)
            }
        };
        self.call_register(register, kind);
    }

    /// Whether the call was answered.
    fn call_register(&mut self, key: String, kind: Kind) -> bool {
        let register = key.clone();
        let call = match kind {
            Kind::Read => Call::Read(key),
            Kind::Set(value) => Call::Write(Command::Set { key, value: value.to_string() }),
            Kind::Swap(expected, value) => {
                let expected = expected.map(|value| value.to_string());
                Call::Write(Command::Swap { key, expected, value: value.to_string() })
            }
        };
        let called = self.load.now();
        let (answer, sent) = self.call(&call);
        let returned = self.load.now();
        let number = |text: String| text.parse().expect("registers have numbers");
        let outcome = match answer {
            Some(Answer::Written(Reply(before))) => {
                self.load.acknowledged.fetch_add(1, Ordering::SeqCst);
                Outcome::Saw(before.map(number))
            }
            Some(Answer::Value(value)) => Outcome::Saw(value.map(number)),
            Some(Answer::NotLeader(_) | Answer::Refused(_)) => {
                if let Kind::Set(value) | Kind::Swap(_, value) = kind {
                    self.load.seen.lock().expect("no client has panicked").refused.insert(value);
                }
                return false;
            }
            None if !sent => return false,
            Some(Answer::Unknown(_)) | None => Outcome::Unknown,
            answer => panic!("not the answer to the call: {answer:?}"),
        };
        let operation = Operation { kind, outcome, called, returned };
        let mut seen = self.load.seen.lock().expect("no client has panicked");
        seen.registers.entry(register).or_default().push(operation);
        outcome != Outcome::Unknown
    }
}

/// The value that an operation has left.
fn value_after(operation: &Operation) -> Option<u64> {
    match (operation.kind, operation.outcome) {
        (Kind::Set(value), _) => Some(value),
        (Kind::Swap(expected, value), Outcome::Saw(before)) if expected == before => Some(value),
        (_, Outcome::Saw(before)) => before,
        (_, Outcome::Done | Outcome::Unknown) => None,
    }
}
