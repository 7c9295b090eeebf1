//! A node: its store, openraft, and the calls that it answers.

use crate::{
    machine::{Machine, text},
    network::{Network, receive},
    protocol::{Answer, Call, Command, RaftCall, Status, TypeConfig, encode},
};
use openraft::{
    BasicNode, Config, Raft, SnapshotPolicy,
    error::{CheckIsLeaderError, InitializeError, RaftError},
};
use std::{
    collections::BTreeMap,
    error::Error,
    fs, io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream},
};
use wattle::{Engine, Options};

/// Memory for pages, in bytes.
const POOL_BYTES: u64 = 16 << 20;
/// Limit of the engine's log, in bytes. It grows beyond during the installation of a snapshot.
const LOG_BYTES: u64 = 64 << 20;
/// Longest command, in bytes. openraft sends up to 300 entries at once.
const MAX_COMMAND: usize = 100 << 10;

pub type Failure = Box<dyn Error + Send + Sync>;

pub struct Settings {
    pub id: u64,
    /// The directory of the node.
    pub store: PathBuf,
    /// The addresses of all nodes, this one among them.
    pub members: BTreeMap<u64, String>,
    pub heartbeat_ms: u64,
    /// Entries from one snapshot to the next.
    pub snapshot_entries: u64,
    /// Entries that stay in the log although the snapshot has them.
    pub keep_entries: u64,
    pub chunk_bytes: u64,
}

impl Settings {
    fn config(&self) -> Result<Config, Failure> {
        let config = Config {
            cluster_name: "wattle".into(),
            heartbeat_interval: self.heartbeat_ms,
            election_timeout_min: 4 * self.heartbeat_ms,
            election_timeout_max: 8 * self.heartbeat_ms,
            // The last piece is answered when the snapshot is installed and durable.
            install_snapshot_timeout: 60_000,
            snapshot_policy: SnapshotPolicy::LogsSinceLast(self.snapshot_entries),
            snapshot_max_chunk_size: self.chunk_bytes,
            max_in_snapshot_log_to_keep: self.keep_entries,
            ..Config::default()
        };
        Ok(config.validate()?)
    }
}

struct Node {
    id: u64,
    engine: Engine,
    machine: Machine,
    raft: Raft<TypeConfig>,
    members: BTreeMap<u64, String>,
    installed: AtomicU64,
}

/// Runs a node until it fails. An interrupt ends the process as a crash does, which loses nothing.
pub async fn run(settings: Settings) -> Result<(), Failure> {
    let address = settings
        .members
        .get(&settings.id)
        .ok_or_else(|| format!("node {} is not one of the members", settings.id))?;
    let listener = TcpListener::bind(address)
        .await
        .map_err(|error| format!("cannot listen on {address}: {error}"))?;
    fs::create_dir_all(&settings.store)?;
    let options = Options::default().pool_bytes(POOL_BYTES).log_bytes(LOG_BYTES);
    let engine = Engine::open(settings.store.join("store"), options)?;
    let (log, machine) = wattle_raft::open(&engine, settings.store.join("snapshots"))?;
    let config = Arc::new(settings.config()?);
    let raft = Raft::new(settings.id, config, Network::default(), log, machine.clone()).await?;
    initialize(&raft, &settings.members).await?;
    println!("node {} listens on {address}", settings.id);
    let Settings { id, members, .. } = settings;
    let installed = AtomicU64::new(0);
    let node = Arc::new(Node { id, engine, machine, raft, members, installed });
    tokio::select! {
        ended = node.clone().accept(listener) => ended,
        ended = node.failure() => ended,
    }
}

/// Makes the members a cluster when the node is new. All of them may do it.
async fn initialize(
    raft: &Raft<TypeConfig>,
    members: &BTreeMap<u64, String>,
) -> Result<(), Failure> {
    if raft.is_initialized().await? {
        return Ok(());
    }
    let members = members.iter().map(|(id, address)| (*id, BasicNode::new(address)));
    match raft.initialize(members.collect::<BTreeMap<_, _>>()).await {
        // Another node was faster, and this one has its entries.
        Err(RaftError::APIError(InitializeError::NotAllowed(_))) => Ok(()),
        result => Ok(result?),
    }
}

impl Node {
    /// Ends when openraft does, as after a failed device.
    async fn failure(&self) -> Result<(), Failure> {
        let mut metrics = self.raft.metrics();
        let ended = metrics.wait_for(|metrics| metrics.running_state.is_err()).await;
        match ended?.running_state.clone() {
            Ok(()) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    async fn accept(self: Arc<Self>, listener: TcpListener) -> Result<(), Failure> {
        loop {
            let (stream, peer) = listener.accept().await?;
            let node = self.clone();
            tokio::spawn(async move {
                if let Err(error) = node.serve(stream).await {
                    eprintln!("connection from {peer}: {error}");
                }
            });
        }
    }

    async fn serve(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        while let Some(call) = receive(&mut stream).await? {
            let answer = match call {
                Call::Raft(id, call) if id == self.id => self.raft(call).await,
                Call::Raft(id, _) => {
                    Answer::Refused(format!("this is node {} and not {id}", self.id))
                }
                Call::Write(command) => self.write(command).await,
                Call::Read(key) => self.read(key).await,
                Call::Status => Answer::Status(self.status()),
                Call::Records => self.records().unwrap_or_else(refused),
            };
            stream.write_all(&encode(&answer)?).await?;
        }
        Ok(())
    }

    async fn raft(&self, call: RaftCall) -> Answer {
        match call {
            RaftCall::Append(call) => Answer::Append(self.raft.append_entries(call).await),
            RaftCall::Vote(call) => Answer::Vote(self.raft.vote(call).await),
            RaftCall::Snapshot(call) => {
                let last = call.done;
                let result = self.raft.install_snapshot(call).await;
                if last && result.is_ok() {
                    self.installed.fetch_add(1, Ordering::Relaxed);
                }
                Answer::Snapshot(result)
            }
        }
    }

    fn not_leader(&self, leader: Option<u64>) -> Answer {
        let leader = leader.and_then(|id| Some((id, self.members.get(&id)?.clone())));
        Answer::NotLeader(leader)
    }

    async fn write(&self, command: Command) -> Answer {
        let bytes = bytes(&command);
        if bytes > MAX_COMMAND {
            return Answer::Refused(format!("{bytes} bytes: at most {MAX_COMMAND}"));
        }
        // Before the command is given to openraft, so that nothing happens to it.
        match self.raft.current_leader().await {
            Some(leader) if leader == self.id => {}
            leader => return self.not_leader(leader),
        }
        match self.raft.client_write(command).await {
            Ok(response) => Answer::Written(response.data),
            // Even if the node says that another one leads: it may have given the entry to nodes
            // that keep it.
            Err(error) => Answer::Unknown(error.to_string()),
        }
    }

    async fn read(&self, key: String) -> Answer {
        // Asks a majority whether this node still leads, and waits until all that was committed
        // before is applied.
        match self.raft.ensure_linearizable().await {
            Ok(_) => {}
            Err(RaftError::APIError(CheckIsLeaderError::ForwardToLeader(to))) => {
                return self.not_leader(to.leader_id);
            }
            Err(error) => return refused(error),
        }
        let value = || self.engine.begin()?.get(self.machine.tree(), key.as_bytes());
        value().map_or_else(refused, |value| Answer::Value(value.map(|value| text(&value))))
    }

    fn status(&self) -> Status {
        let metrics = self.raft.metrics().borrow().clone();
        Status {
            id: self.id,
            state: format!("{:?}", metrics.state),
            leader: metrics.current_leader,
            term: metrics.current_term,
            last_entry: metrics.last_log_index,
            applied: metrics.last_applied.map(|id| id.index),
            snapshot: metrics.snapshot.map(|id| id.index),
            purged: metrics.purged.map(|id| id.index),
            installed: self.installed.load(Ordering::Relaxed),
        }
    }

    fn records(&self) -> Result<Answer, Failure> {
        let txn = self.engine.begin()?;
        let applied = self.machine.last_applied(&txn)?;
        let mut records = Vec::new();
        for record in txn.scan(self.machine.tree())? {
            let (key, value) = record?;
            records.push((text(&key), text(&value)));
        }
        Ok(Answer::Records(applied.map(|id| id.index), records))
    }
}

/// Bytes of the texts of a command.
fn bytes(command: &Command) -> usize {
    match command {
        Command::Set { key, value } => key.len() + value.len(),
        Command::Swap { key, expected, value } => {
            key.len() + value.len() + expected.as_ref().map_or(0, String::len)
        }
    }
}

fn refused(error: impl ToString) -> Answer {
    Answer::Refused(error.to_string())
}
