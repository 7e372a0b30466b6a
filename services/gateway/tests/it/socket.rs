//! A client of WebSocket, byte by byte.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const TEXT: u8 = 0x81;
const CLOSE: u8 = 0x88;

/// An upgraded connection.
pub(crate) struct Socket(TcpStream);

impl Socket {
    /// Connects, and returns the status of a refused upgrade.
    pub(crate) async fn open(address: SocketAddr, path: &str, headers: &str) -> Result<Self, u16> {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = format!(
            "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n{headers}\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            answer.push(stream.read_u8().await.unwrap());
        }
        let status = std::str::from_utf8(&answer[9..12]).unwrap();
        match status.parse().unwrap() {
            101 => Ok(Self(stream)),
            status => Err(status),
        }
    }

    /// Sends a text, masked with zeros.
    pub(crate) async fn send(&mut self, text: &str) {
        let mut frame = vec![TEXT, 0x80 | 126];
        frame.extend((text.len() as u16).to_be_bytes());
        frame.extend([0; 4]);
        frame.extend(text.as_bytes());
        self.0.write_all(&frame).await.unwrap();
    }

    /// Returns the next text as JSON; `None` when the server closes.
    pub(crate) async fn next(&mut self) -> Option<serde_json::Value> {
        let kind = self.0.read_u8().await.unwrap();
        let length = match self.0.read_u8().await.unwrap() {
            126 => usize::from(self.0.read_u16().await.unwrap()),
            length => usize::from(length),
        };
        let mut payload = vec![0; length];
        self.0.read_exact(&mut payload).await.unwrap();
        match kind {
            CLOSE => None,
            TEXT => Some(serde_json::from_slice(&payload).unwrap()),
            other => unreachable!("a frame of the kind {other}"),
        }
    }
}
