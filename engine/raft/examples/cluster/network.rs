//! Calls from node to node.

use crate::protocol::{Answer, Call, HEADER, RaftCall, TypeConfig, decode, encode, length};
use openraft::{
    BasicNode, RaftNetwork, RaftNetworkFactory,
    error::{Infallible, InstallSnapshotError, RPCError, RaftError, RemoteError, Unreachable},
    network::RPCOption,
    raft::{
        AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest,
        InstallSnapshotResponse, VoteRequest, VoteResponse,
    },
};
use serde::de::DeserializeOwned;
use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, PoisonError},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// Most connections to a node that are kept for later calls.
const KEPT: usize = 4;

type Rpc<T, E = Infallible> = Result<T, RPCError<u64, BasicNode, RaftError<u64, E>>>;

/// The next message of a connection. None when the other side has closed it.
pub async fn receive<T: DeserializeOwned>(stream: &mut TcpStream) -> io::Result<Option<T>> {
    let mut header = [0; HEADER];
    if stream.read(&mut header[..1]).await? == 0 {
        return Ok(None);
    }
    stream.read_exact(&mut header[1..]).await?;
    let bytes = length(header)?;
    // Grows with what arrives: a wrong header costs no memory.
    let mut message = Vec::new();
    stream.take(bytes as u64).read_to_end(&mut message).await?;
    if message.len() < bytes {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    decode(&message).map(Some)
}

async fn exchange(stream: &mut TcpStream, frame: &[u8]) -> io::Result<Answer> {
    stream.write_all(frame).await?;
    receive(stream).await?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

/// Connections to the other nodes, by address.
#[derive(Clone, Default)]
pub struct Network(Arc<Mutex<BTreeMap<String, Vec<TcpStream>>>>);

impl RaftNetworkFactory<TypeConfig> for Network {
    type Network = Peer;

    async fn new_client(&mut self, id: u64, node: &BasicNode) -> Peer {
        Peer { network: self.clone(), id, address: node.addr.clone() }
    }
}

/// Another node.
pub struct Peer {
    network: Network,
    id: u64,
    address: String,
}

impl Peer {
    fn kept<T>(&self, work: impl FnOnce(&mut Vec<TcpStream>) -> T) -> T {
        let mut all = self.network.0.lock().unwrap_or_else(PoisonError::into_inner);
        work(all.entry(self.address.clone()).or_default())
    }

    /// Calls the node. openraft limits the time, and drops this future then. The connection is in
    /// it, so no other call gets the late answer.
    async fn call(&self, call: RaftCall) -> io::Result<Answer> {
        let frame = encode(&Call::Raft(self.id, call))?;
        if let Some(mut stream) = self.kept(Vec::pop) {
            if let Ok(answer) = exchange(&mut stream, &frame).await {
                self.keep(stream);
                return Ok(answer);
            }
            // The node was started again: the other connections are closed too. All calls of Raft
            // may be repeated.
            self.kept(Vec::clear);
        }
        let mut stream = TcpStream::connect(&self.address).await?;
        stream.set_nodelay(true)?;
        let answer = exchange(&mut stream, &frame).await?;
        self.keep(stream);
        Ok(answer)
    }

    fn keep(&self, stream: TcpStream) {
        self.kept(|kept| {
            if kept.len() < KEPT {
                kept.push(stream);
            }
        });
    }

    /// openraft waits a moment before it calls an unreachable node again.
    fn unreachable(&self, error: &io::Error) -> Unreachable {
        Unreachable::new(&io::Error::new(
            error.kind(),
            format!("node {} at {}: {error}", self.id, self.address),
        ))
    }

    /// The result in an answer, which `pick` takes out, or gives back an answer of another kind.
    fn result<T, E: std::error::Error>(
        &self,
        answer: io::Result<Answer>,
        pick: impl FnOnce(Answer) -> Result<Result<T, RaftError<u64, E>>, Answer>,
    ) -> Rpc<T, E> {
        let other = |answer| io::Error::other(format!("not the answer to the call: {answer:?}"));
        match answer.and_then(|answer| pick(answer).map_err(other)) {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(RemoteError::new(self.id, error).into()),
            Err(error) => Err(self.unreachable(&error).into()),
        }
    }
}

impl RaftNetwork<TypeConfig> for Peer {
    async fn append_entries(
        &mut self,
        call: AppendEntriesRequest<TypeConfig>,
        _: RPCOption,
    ) -> Rpc<AppendEntriesResponse<u64>> {
        let answer = self.call(RaftCall::Append(call)).await;
        self.result(answer, |answer| match answer {
            Answer::Append(result) => Ok(result),
            other => Err(other),
        })
    }

    async fn vote(&mut self, call: VoteRequest<u64>, _: RPCOption) -> Rpc<VoteResponse<u64>> {
        let answer = self.call(RaftCall::Vote(call)).await;
        self.result(answer, |answer| match answer {
            Answer::Vote(result) => Ok(result),
            other => Err(other),
        })
    }

    async fn install_snapshot(
        &mut self,
        call: InstallSnapshotRequest<TypeConfig>,
        _: RPCOption,
    ) -> Rpc<InstallSnapshotResponse<u64>, InstallSnapshotError> {
        let answer = self.call(RaftCall::Snapshot(call)).await;
        self.result(answer, |answer| match answer {
            Answer::Snapshot(result) => Ok(result),
            other => Err(other),
        })
    }
}
