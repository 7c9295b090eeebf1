//! The messages between nodes and of clients, and their frames.
//!
//! A connection carries calls one way and one answer to each the other way, in order. A frame is
//! the length of the message (u32, little-endian) and the message in postcard's format.

use openraft::{
    error::{InstallSnapshotError, RaftError},
    raft::{
        AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest,
        InstallSnapshotResponse, VoteRequest, VoteResponse,
    },
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::io;
use wattle_raft::SnapshotFile;

/// Longest message in bytes. 300 entries of the longest commands fit (`server::MAX_COMMAND`).
pub const MAX_MESSAGE: usize = 64 << 20;
/// Bytes before each message.
pub const HEADER: usize = 4;

openraft::declare_raft_types!(
    pub TypeConfig: D = Command, R = Reply, SnapshotData = SnapshotFile
);

/// A change of the replicated map.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub enum Command {
    /// Gives a key a value.
    Set { key: String, value: String },
    /// Gives a key a value if it has the expected one. None: if it has none.
    Swap { key: String, expected: Option<String>, value: String },
}

/// The value of the key before the command. A swap was done if it is the expected one.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct Reply(pub Option<String>);

/// A message of openraft to another node. The answer has the same name.
#[derive(Serialize, Deserialize)]
pub enum RaftCall {
    Append(AppendEntriesRequest<TypeConfig>),
    Vote(VoteRequest<u64>),
    Snapshot(InstallSnapshotRequest<TypeConfig>),
}

#[derive(Serialize, Deserialize)]
pub enum Call {
    /// For the node of this id: an address may be another node's.
    Raft(u64, RaftCall),
    Write(Command),
    /// The value of a key after all writes that were acknowledged before the call.
    Read(String),
    Status,
    /// All records that this node has, which may be older than the leader's.
    Records,
}

#[derive(Serialize, Deserialize, Debug)]
pub enum Answer {
    Append(Result<AppendEntriesResponse<u64>, RaftError<u64>>),
    Vote(Result<VoteResponse<u64>, RaftError<u64>>),
    Snapshot(Result<InstallSnapshotResponse<u64>, RaftError<u64, InstallSnapshotError>>),
    /// The write is in the logs of a majority, and applied.
    Written(Reply),
    Value(Option<String>),
    /// This node did nothing. The id and the address of the leader, if it knows one.
    NotLeader(Option<(u64, String)>),
    /// The write may be done, now or later, or never.
    Unknown(String),
    /// The node did nothing.
    Refused(String),
    Status(Status),
    /// The index of the last entry that the records are made of, and the records.
    Records(Option<u64>, Vec<(String, String)>),
}

/// How far a node is. Entries are named by their index.
#[derive(Serialize, Deserialize, Debug, Clone)]
pub struct Status {
    pub id: u64,
    /// `Leader`, `Follower`, `Candidate`, `Learner` or `Shutdown`.
    pub state: String,
    pub leader: Option<u64>,
    pub term: u64,
    pub last_entry: Option<u64>,
    pub applied: Option<u64>,
    pub snapshot: Option<u64>,
    pub purged: Option<u64>,
    /// Snapshots that it has received and installed since it was started.
    pub installed: u64,
}

/// The frame of a message.
pub fn encode(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let frame = postcard::to_extend(message, vec![0; HEADER]);
    let mut frame = frame.map_err(io::Error::other)?;
    let bytes = frame.len() - HEADER;
    match u32::try_from(bytes) {
        Ok(length) if bytes <= MAX_MESSAGE => {
            frame[..HEADER].copy_from_slice(&length.to_le_bytes());
            Ok(frame)
        }
        _ => Err(io::Error::other(format!("a message of {bytes} bytes: at most {MAX_MESSAGE}"))),
    }
}

/// The length of the message after a header.
pub fn length(header: [u8; HEADER]) -> io::Result<usize> {
    match u32::from_le_bytes(header) as usize {
        bytes if bytes <= MAX_MESSAGE => Ok(bytes),
        bytes => Err(invalid(format!("a message of {bytes} bytes: at most {MAX_MESSAGE}"))),
    }
}

/// The message of a frame without its header.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> io::Result<T> {
    postcard::from_bytes(bytes).map_err(|error| invalid(format!("no message: {error}")))
}

fn invalid(sentence: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, sentence)
}
