//! An endpoint of models that answers each request from a file.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::model_endpoint;

/// An HTTP response.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Reply {
    /// The status.
    #[serde(default = "ok")]
    status: u16,
    /// The headers other than `connection`; a stream of events has its `content-type` where none is
    /// given.
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// The data of each event: JSON, or a text as it is sent.
    #[serde(default)]
    events: Option<Vec<Value>>,
    /// The body: JSON, or a text as it is sent.
    #[serde(default)]
    body: Option<Value>,
    /// Bytes of a body that is announced and not sent.
    #[serde(default)]
    missing: usize,
    /// Bytes of one write; zero for all at once.
    #[serde(default)]
    chunk: usize,
}

fn ok() -> u16 {
    200
}

fn written(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

impl Reply {
    fn text(&self) -> String {
        let mut body = self.body.as_ref().map(written).unwrap_or_default();
        for event in self.events.iter().flatten() {
            match event {
                Value::String(raw) => body.push_str(raw),
                event => body.push_str(&format!("data: {event}\n\n")),
            }
        }
        let mut head = format!("HTTP/1.1 {} Played\r\nconnection: close\r\n", self.status);
        if !self.headers.contains_key("content-type") {
            let media_type = match self.events {
                Some(_) => "text/event-stream",
                None => "application/json",
            };
            head.push_str(&format!("content-type: {media_type}\r\n"));
        }
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if self.missing > 0 {
            let length = body.len() + self.missing;
            head.push_str(&format!("content-length: {length}\r\n"));
        }
        format!("{head}\r\n{body}")
    }
}

/// The answers of one address: the replies in order, of which the last repeats, and the requests so far.
#[derive(Debug, Default)]
struct Played {
    replies: Vec<Reply>,
    requests: Vec<Value>,
}

/// The endpoint, which ends with this. Each address below it plays by itself.
pub(super) struct PlayedEndpoint {
    base_url: String,
    played: Arc<Mutex<BTreeMap<String, Played>>>,
    task: JoinHandle<()>,
}

impl Drop for PlayedEndpoint {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl PlayedEndpoint {
    pub(super) async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let base_url = format!("http://{}", listener.local_addr()?);
        let played = Arc::<Mutex<BTreeMap<String, Played>>>::default();
        let shared = Arc::clone(&played);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let shared = Arc::clone(&shared);
                // A client that leaves is no concern of the endpoint.
                tokio::spawn(async move { serve(stream, &shared).await });
            }
        });
        Ok(Self {
            base_url,
            played,
            task,
        })
    }

    /// Returns the address above `/chat/completions` and `/messages` at which `name` is played.
    pub(super) fn base_url(&self, name: &str) -> String {
        format!("{}/{name}", self.base_url)
    }

    /// Plays from the beginning at an address.
    pub(super) fn play(&self, name: &str, replies: &[Reply]) {
        let mut played = self.played.lock().unwrap_or_else(PoisonError::into_inner);
        let anew = Played {
            replies: replies.to_vec(),
            requests: Vec::new(),
        };
        played.insert(name.to_owned(), anew);
    }

    /// Returns the requests to an address since it began to play.
    pub(super) fn requests(&self, name: &str) -> Vec<Value> {
        let played = self.played.lock().unwrap_or_else(PoisonError::into_inner);
        let played = played.get(name);
        played.map_or_else(Vec::new, |played| played.requests.clone())
    }
}

async fn serve(
    mut stream: TcpStream,
    played: &Mutex<BTreeMap<String, Played>>,
) -> anyhow::Result<()> {
    let (head, body) = model_endpoint::read(&mut stream).await?;
    let name = head.split('/').nth(1).context("the address has no name")?;
    let reply = {
        let mut played = played.lock().unwrap_or_else(PoisonError::into_inner);
        let played = played.entry(name.to_owned()).or_default();
        let last = played.replies.len().saturating_sub(1);
        let reply = played.replies.get(played.requests.len().min(last)).cloned();
        played.requests.push(body);
        reply
    };
    let unplayed = || Reply {
        status: 404,
        headers: BTreeMap::new(),
        events: None,
        body: Some(json!({"error": {"message": "nothing is played here"}})),
        missing: 0,
        chunk: 0,
    };
    let reply = reply.unwrap_or_else(unplayed);
    let text = reply.text();
    let size = match reply.chunk {
        0 => text.len(),
        size => size,
    };
    for bytes in text.as_bytes().chunks(size.max(1)) {
        stream.write_all(bytes).await?;
        stream.flush().await?;
    }
    Ok(stream.shutdown().await?)
}
