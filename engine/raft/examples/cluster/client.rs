//! A blocking client.

use crate::protocol::{Answer, Call, HEADER, decode, encode, length};
use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

/// A connection to a node.
pub struct Client {
    stream: TcpStream,
}

impl Client {
    /// Connects to a node. An answer, too, is waited for as long as `timeout`.
    pub fn connect(address: SocketAddr, timeout: Duration) -> io::Result<Client> {
        let stream = TcpStream::connect_timeout(&address, timeout)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        Ok(Client { stream })
    }

    /// Calls the node. After an error the outcome is unknown, and the connection is of no use.
    pub fn call(&mut self, call: &Call) -> io::Result<Answer> {
        self.stream.write_all(&encode(call)?)?;
        let mut header = [0; HEADER];
        self.stream.read_exact(&mut header)?;
        let bytes = length(header)?;
        let mut message = Vec::new();
        (&self.stream).take(bytes as u64).read_to_end(&mut message)?;
        match message.len() == bytes {
            true => decode(&message),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}
