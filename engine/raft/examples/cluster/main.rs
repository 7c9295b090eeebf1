//! A replicated map on three machines, or three processes: each runs one node with a Wattle store,
//! and openraft makes the nodes agree.
//!
//! `cluster node` runs a node, the other commands are clients. Nodes and clients talk over TCP,
//! without encryption and without passwords: only for networks that are trusted.

// The error is openraft's.
#![allow(clippy::result_large_err)]

mod client;
mod machine;
mod network;
mod protocol;
mod server;

use clap::{Args, Parser, Subcommand, value_parser};
use client::Client;
use protocol::{Answer, Call, Command};
use server::{Failure, Settings};
use std::{
    collections::BTreeMap,
    net::{SocketAddr, ToSocketAddrs},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

/// How long a client waits for an answer.
const TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Parser)]
#[command(about = "A replicated map of Wattle stores and openraft")]
struct Options {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Runs a node.
    Node(NodeOptions),
    /// Gives a key a value.
    Set {
        #[command(flatten)]
        members: Members,
        key: String,
        value: String,
    },
    /// Gives a key a value if it has the expected one.
    Swap {
        #[command(flatten)]
        members: Members,
        key: String,
        /// The value that it must have. Left out: none.
        #[arg(long)]
        expected: Option<String>,
        value: String,
    },
    /// Prints the value of a key, with all writes that were acknowledged before.
    Get {
        #[command(flatten)]
        members: Members,
        key: String,
    },
    /// Prints how far each node is.
    Status {
        #[command(flatten)]
        members: Members,
    },
}

#[derive(Args)]
struct Members {
    /// All nodes with their addresses, as 1=127.0.0.1:7001,2=127.0.0.1:7002,3=127.0.0.1:7003. The
    /// same for all nodes.
    #[arg(
        long,
        env = "CLUSTER_MEMBERS",
        value_delimiter = ',',
        value_parser = member,
        required = true
    )]
    members: Vec<(u64, String)>,
}

#[derive(Args)]
struct NodeOptions {
    /// The number of this node.
    #[arg(long)]
    id: u64,
    /// The directory of this node.
    #[arg(long)]
    store: PathBuf,
    #[command(flatten)]
    members: Members,
    /// Milliseconds between two messages of the leader. Nodes elect another one after 4 to 8 times
    /// this without a message.
    #[arg(long, default_value_t = 250)]
    heartbeat_ms: u64,
    /// Entries from one snapshot to the next.
    #[arg(long, default_value_t = 10_000)]
    snapshot_entries: u64,
    /// Entries that stay in the log although the snapshot has them, for nodes that are a little
    /// late.
    #[arg(long, default_value_t = 1_000)]
    keep_entries: u64,
    /// Bytes of a snapshot in one message.
    #[arg(long, default_value_t = 1 << 20, value_parser = value_parser!(u64).range(1..=32 << 20))]
    chunk_bytes: u64,
}

fn member(text: &str) -> Result<(u64, String), String> {
    let (id, address) = text.split_once('=').ok_or("not of the form ID=HOST:PORT")?;
    let id = id.parse().map_err(|error| format!("the id {id}: {error}"))?;
    Ok((id, address.to_owned()))
}

fn main() -> ExitCode {
    match run(Options::parse().action) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(action: Action) -> Result<(), Failure> {
    match action {
        Action::Node(options) => {
            let settings = Settings {
                id: options.id,
                store: options.store,
                members: by_id(options.members)?,
                heartbeat_ms: options.heartbeat_ms,
                snapshot_entries: options.snapshot_entries,
                keep_entries: options.keep_entries,
                chunk_bytes: options.chunk_bytes,
            };
            tokio::runtime::Runtime::new()?.block_on(server::run(settings))
        }
        Action::Set { members, key, value } => {
            written(at_leader(members, &Call::Write(Command::Set { key, value }))?).map(|_| ())
        }
        Action::Swap { members, key, expected, value } => {
            let command = Command::Swap { key, expected: expected.clone(), value };
            match written(at_leader(members, &Call::Write(command))?)? {
                before if before == expected => Ok(()),
                before => Err(format!("not done: the value is {before:?}").into()),
            }
        }
        Action::Get { members, key } => match at_leader(members, &Call::Read(key))? {
            Answer::Value(Some(value)) => {
                println!("{value}");
                Ok(())
            }
            Answer::Value(None) => Err("there is no such key".into()),
            answer => Err(sentence(answer)),
        },
        Action::Status { members } => status(members),
    }
}

fn by_id(members: Members) -> Result<BTreeMap<u64, String>, Failure> {
    let count = members.members.len();
    let members: BTreeMap<_, _> = members.members.into_iter().collect();
    match members.len() == count {
        true => Ok(members),
        false => Err("two members have the same id".into()),
    }
}

fn connect(address: &str) -> Result<Client, Failure> {
    let mut resolved = address.to_socket_addrs()?;
    let resolved: SocketAddr = resolved.next().ok_or("the name has no address")?;
    Ok(Client::connect(resolved, TIMEOUT)?)
}

/// Asks one node after the other until one does not say that it is no leader. A node that cannot be
/// reached has done nothing. A call that fails later may have been done, and ends this.
fn at_leader(members: Members, call: &Call) -> Result<Answer, Failure> {
    let mut errors = Vec::new();
    for (id, address) in by_id(members)? {
        let answer = match connect(&address) {
            Ok(mut client) => client.call(call).map_err(|error| {
                format!("node {id} at {address}: {error}; the outcome is unknown")
            })?,
            Err(error) => {
                errors.push(format!("node {id} at {address}: {error}"));
                continue;
            }
        };
        match answer {
            Answer::NotLeader(Some((leader, _))) => {
                errors.push(format!("node {id}: not the leader, ask node {leader}"));
            }
            Answer::NotLeader(None) => errors.push(format!("node {id}: there is no leader")),
            answer => return Ok(answer),
        }
    }
    Err(errors.join("\n").into())
}

fn written(answer: Answer) -> Result<Option<String>, Failure> {
    match answer {
        Answer::Written(reply) => Ok(reply.0),
        answer => Err(sentence(answer)),
    }
}

fn sentence(answer: Answer) -> Failure {
    match answer {
        Answer::Refused(sentence) => format!("refused: {sentence}").into(),
        Answer::Unknown(sentence) => format!("the outcome is unknown: {sentence}").into(),
        answer => format!("not the answer to the call: {answer:?}").into(),
    }
}

fn status(members: Members) -> Result<(), Failure> {
    for (id, address) in by_id(members)? {
        let called = connect(&address).and_then(|mut client| Ok(client.call(&Call::Status)?));
        match called {
            Ok(Answer::Status(status)) => {
                let number = |index: Option<u64>| index.map_or("-".into(), |at| at.to_string());
                println!(
                    "node {id} at {address}: {} of term {}, leader {}, last entry {}, applied {}, \
                     snapshot {}, purged {}, snapshots installed {}",
                    status.state.to_lowercase(),
                    status.term,
                    number(status.leader),
                    number(status.last_entry),
                    number(status.applied),
                    number(status.snapshot),
                    number(status.purged),
                    status.installed,
                );
            }
            Ok(answer) => return Err(sentence(answer)),
            Err(error) => println!("node {id} at {address}: {error}"),
        }
    }
    Ok(())
}
