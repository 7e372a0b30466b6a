//! A client of files that sends every byte itself.

use std::collections::HashMap;

use anyhow::Context;
use serde_json::Value;
use testkit::Stack;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A client with the files of a conversation.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) host: String,
    pub(crate) base: String,
    /// The header of its key, with its end; empty without a key.
    pub(crate) key: String,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: HashMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Client {
    pub(crate) fn of(stack: &Stack, conversation: &str) -> Self {
        Self {
            host: stack.address().trim_start_matches("http://").to_owned(),
            base: format!("/v1/conversations/{conversation}/files"),
            key: String::new(),
        }
    }

    /// Returns a client with a key.
    pub(crate) fn with_key(mut self, key: &str) -> Self {
        self.key = format!("authorization: Bearer {key}\r\n");
        self
    }

    /// Returns a client of another conversation.
    pub(crate) fn at(&self, conversation: &str) -> Self {
        Self {
            base: format!("/v1/conversations/{conversation}/files"),
            ..self.clone()
        }
    }

    pub(crate) async fn list(&self, query: &str) -> anyhow::Result<Answer> {
        self.exchange("GET", &format!("{}{query}", self.base), "", b"")
            .await
    }

    pub(crate) async fn get(&self, path: &str, headers: &str) -> anyhow::Result<Answer> {
        self.send("GET", path, headers, b"").await
    }

    pub(crate) async fn put(
        &self,
        path: &str,
        headers: &str,
        content: &[u8],
    ) -> anyhow::Result<Answer> {
        let headers = format!("content-length: {}\r\n{headers}", content.len());
        self.send("PUT", path, &headers, content).await
    }

    pub(crate) async fn send(
        &self,
        verb: &str,
        path: &str,
        headers: &str,
        body: &[u8],
    ) -> anyhow::Result<Answer> {
        let address = format!("{}/{}", self.base, encoded(path));
        self.exchange(verb, &address, headers, body).await
    }

    /// Sends a request to an address as it is written.
    pub(crate) async fn exchange(
        &self,
        verb: &str,
        address: &str,
        headers: &str,
        body: &[u8],
    ) -> anyhow::Result<Answer> {
        let mut stream = self.begin(verb, address, headers).await?;
        stream.write_all(body).await?;
        answer(stream, verb == "HEAD").await
    }

    /// Sends the head of a request.
    pub(crate) async fn begin(
        &self,
        verb: &str,
        address: &str,
        headers: &str,
    ) -> anyhow::Result<TcpStream> {
        let mut stream = TcpStream::connect(&self.host).await?;
        let Self { host, key, .. } = self;
        let head = format!(
            "{verb} {address} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{key}{headers}\r\n"
        );
        stream.write_all(head.as_bytes()).await?;
        Ok(stream)
    }

    /// Returns the address of a file.
    pub(crate) fn address(&self, path: &str) -> String {
        format!("{}/{}", self.base, encoded(path))
    }
}

impl Answer {
    /// Returns a header; empty without it.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    pub(crate) fn json(&self) -> anyhow::Result<Value> {
        Ok(serde_json::from_slice(&self.body)?)
    }
}

/// Reads an answer to its end.
pub(crate) async fn answer(mut stream: TcpStream, is_head: bool) -> anyhow::Result<Answer> {
    let mut bytes = Vec::new();
    // A server that has refused a body closes the connection before all of it has arrived.
    let ended = stream.read_to_end(&mut bytes).await;
    // The server may have asked for the body before it refused it.
    if bytes.starts_with(b"HTTP/1.1 100 Continue\r\n\r\n") {
        bytes.drain(.."HTTP/1.1 100 Continue\r\n\r\n".len());
    }
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
    let end = match end {
        Some(end) => end,
        None => {
            ended?;
            anyhow::bail!(
                "the answer has no head: {}",
                String::from_utf8_lossy(&bytes)
            );
        }
    };
    let head = String::from_utf8(bytes[..end].to_vec())?;
    let mut lines = head.lines();
    let first = lines.next().context("there is no line")?;
    let status = first.split(' ').nth(1).context("there is no status")?;
    let fields = lines.filter_map(|line| line.split_once(": "));
    let fields = fields.map(|(name, value)| (name.to_lowercase(), value.to_owned()));
    let answer = Answer {
        status: status.parse()?,
        headers: fields.collect(),
        body: bytes[end + 4..].to_vec(),
    };
    if let Ok(length) = answer.header("content-length").parse::<usize>()
        && !is_head
        && answer.status != 304
    {
        anyhow::ensure!(
            length == answer.body.len(),
            "{length} bytes: {}",
            answer.body.len()
        );
    }
    Ok(answer)
}

/// Returns a path as an address writes it.
pub(crate) fn encoded(path: &str) -> String {
    let encode = |byte: u8| match byte {
        b'/' | b'-' | b'.' | b'_' => char::from(byte).to_string(),
        _ if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    path.bytes().map(encode).collect()
}
