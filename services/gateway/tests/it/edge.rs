//! A gateway on a socket, called by plain HTTP.

use std::net::SocketAddr;

use gateway::{GatewaySettings, HttpSettings, Peers};
use grpc_kit::{Server, ServerSettings, Services, Shutdown, ShutdownHandle};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A gateway behind which no service answers.
pub(crate) struct Edge {
    address: SocketAddr,
    _shutdown: ShutdownHandle,
}

/// An answer by HTTP/1.1.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Edge {
    pub(crate) async fn start() -> Self {
        Self::behind(&[]).await
    }

    /// Starts a gateway that trusts the proxies at `addresses`.
    pub(crate) async fn behind(addresses: &[&str]) -> Self {
        let nothing = || grpc_kit::local(&Services::new());
        let peers = Peers::over(nothing(), nothing(), nothing());
        let settings = GatewaySettings {
            http: HttpSettings {
                hosts: vec!["tavern.example".to_owned()],
                origins: vec!["https://app.example".to_owned()],
                proxies: addresses.iter().map(ToString::to_string).collect(),
                ..HttpSettings::default()
            },
            ..GatewaySettings::default()
        };
        let gateway = gateway::build(settings, peers);
        let server = ServerSettings::default();
        let listener = grpc_kit::bind(&server).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (shutdown, handle) = Shutdown::manual();
        let services = gateway.services();
        let http = gateway.http(&services);
        let server = Server::new(server, services).http(http);
        tokio::spawn(server.serve(listener, shutdown));
        Self {
            address,
            _shutdown: handle,
        }
    }

    pub(crate) fn host(&self) -> String {
        self.address.to_string()
    }

    /// Sends a request with exactly the given headers, including the host.
    pub(crate) async fn send(&self, verb: &str, path: &str, headers: &str, body: &[u8]) -> Answer {
        send(self.address, verb, path, headers, body).await
    }

    /// Sends a POST from a client that is not a browser.
    pub(crate) async fn post(&self, path: &str, kind: &str, body: &[u8]) -> Answer {
        let headers = format!("host: {}\r\ncontent-type: {kind}\r\n", self.host());
        self.send("POST", path, &headers, body).await
    }
}

/// Sends a request with exactly the given headers, including the host, and reads the answer to its end.
pub(crate) async fn send(
    address: SocketAddr,
    verb: &str,
    path: &str,
    headers: &str,
    body: &[u8],
) -> Answer {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let length = body.len();
    let head = format!(
        "{verb} {path} HTTP/1.1\r\ncontent-length: {length}\r\nconnection: close\r\n{headers}\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body).await.unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.unwrap();
    let end = bytes
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .unwrap();
    let head = String::from_utf8(bytes[..end].to_vec())
        .unwrap()
        .to_lowercase();
    let body = bytes[end + 4..].to_vec();
    let chunked = head.contains("transfer-encoding: chunked");
    Answer {
        status: head[9..12].parse().unwrap(),
        body: if chunked { unchunk(&body) } else { body },
        head,
    }
}

impl Answer {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(crate) fn has(&self, header: &str) -> bool {
        self.head.lines().any(|line| line == header)
    }
}

fn unchunk(mut body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some(end) = body.windows(2).position(|two| two == b"\r\n") {
        let length = std::str::from_utf8(&body[..end]).unwrap();
        let length = usize::from_str_radix(length, 16).unwrap();
        whole.extend_from_slice(&body[end + 2..end + 2 + length]);
        body = &body[end + 2 + length + 2..];
    }
    whole
}
