//! Followers of a run at the edges, on bare sockets: the client itself adds close to no cost.

use anyhow::{Context, bail, ensure};
use contracts::tavern::run::v1::WatchRunRequest;
use prost::Message as _;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// The receive buffer of a client, in bytes: as small as the system allows, so that a client that
/// stalls is noticed soon.
const RECEIVE_BUFFER: u32 = 4 << 10;

/// The longest head of an answer.
const MAX_HEAD: usize = 4 << 10;

/// An edge over HTTP/1.1 at which a run can be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edge {
    WebSocket,
    ServerSentEvents,
    Connect,
    GrpcWeb,
}

impl Edge {
    pub(crate) const ALL: [Edge; 4] = [
        Edge::WebSocket,
        Edge::ServerSentEvents,
        Edge::Connect,
        Edge::GrpcWeb,
    ];

    fn request(self, host: &str, run_id: &str) -> Vec<u8> {
        let get = |more: &str| {
            format!("GET /v1/runs/{run_id}/events HTTP/1.1\r\nhost: {host}\r\n{more}\r\n")
                .into_bytes()
        };
        let post = |kind: &str, message: &[u8]| {
            let length = message.len() as u32;
            let mut request = format!(
                "POST /tavern.run.v1.RunService/WatchRun HTTP/1.1\r\nhost: {host}\r\n\
                 content-type: application/{kind}\r\ncontent-length: {}\r\n\r\n\0",
                message.len() + 5
            )
            .into_bytes();
            request.extend(length.to_be_bytes());
            request.extend(message);
            request
        };
        match self {
            Edge::WebSocket => get(
                "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
                 sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
            ),
            Edge::ServerSentEvents => get("accept: text/event-stream\r\n"),
            Edge::Connect => post(
                "connect+json",
                format!("{{\"runId\":\"{run_id}\"}}").as_bytes(),
            ),
            Edge::GrpcWeb => {
                let request = WatchRunRequest {
                    run_id: run_id.to_owned(),
                    after_sequence: 0,
                };
                post("grpc-web+proto", &request.encode_to_vec())
            }
        }
    }
}

/// A client that follows a run.
#[derive(Debug)]
pub(crate) struct EdgeClient {
    stream: TcpStream,
}

impl EdgeClient {
    /// Follows a run at a server whose address begins with `http://`, and reads the head of the answer.
    ///
    /// # Errors
    /// The server refuses.
    pub(crate) async fn open(address: &str, edge: Edge, run_id: &str) -> anyhow::Result<Self> {
        let host = address
            .strip_prefix("http://")
            .context("the address is one of HTTP")?;
        let socket = TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
        let mut stream = socket.connect(host.parse()?).await?;
        stream.write_all(&edge.request(host, run_id)).await?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await?);
            ensure!(head.len() < MAX_HEAD, "the head of the answer is too long");
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        match head.split(' ').nth(1) {
            Some("200" | "101") => Ok(Self { stream }),
            _ => bail!("{edge:?} is refused: {head}"),
        }
    }

    /// Reads some bytes and drops them; returns `false` at the end.
    pub(crate) async fn skip(&mut self, most: usize) -> bool {
        let mut bytes = vec![0; most];
        matches!(self.stream.read(&mut bytes).await, Ok(1..))
    }

    /// Returns the next frame of a WebSocket; `None` once it is closed.
    pub(crate) async fn frame(&mut self) -> anyhow::Result<Option<Vec<u8>>> {
        const CLOSE: u8 = 8;
        let Ok(first) = self.stream.read_u8().await else {
            return Ok(None);
        };
        let length = match self.stream.read_u8().await? {
            126 => u64::from(self.stream.read_u16().await?),
            127 => self.stream.read_u64().await?,
            short => u64::from(short),
        };
        let mut payload = vec![0; usize::try_from(length)?];
        self.stream.read_exact(&mut payload).await?;
        Ok((first & 0xf != CLOSE).then_some(payload))
    }
}
