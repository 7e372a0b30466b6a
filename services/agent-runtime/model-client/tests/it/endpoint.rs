//! A small HTTP server that answers as it is scripted, step by step.
#![allow(
    dead_code,
    reason = "the tests of agent-runtime include this file too, and each of both uses a part of it"
)]

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use model_client::EndpointSettings;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Notify,
    task::JoinHandle,
};

/// An action of the server on a connection after it has read the request.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Sends bytes.
    Send(String),
    /// Sends the result of a function of the request's body.
    Answer(fn(&serde_json::Value) -> String),
    /// Sends bytes repeatedly until the client is gone.
    SendForever(String),
    /// Sends bytes slowly until the client is gone.
    Drip(String),
    /// Is silent until the client is gone.
    Silence,
}

/// A received request.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    /// Request line and headers.
    pub(crate) head: String,
    /// The body.
    pub(crate) body: serde_json::Value,
}

/// A server on a free port.
pub(crate) struct Endpoint {
    /// The address above `/chat/completions`.
    pub(crate) base_url: String,
    received: Arc<Mutex<Vec<Received>>>,
    gone: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Endpoint {
    /// Answers each request with the next of `replies`; the last one repeats.
    pub(crate) async fn start(replies: Vec<Vec<Step>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
        let received = Arc::new(Mutex::new(Vec::new()));
        let gone = Arc::new(Notify::new());
        let (log, left) = (Arc::clone(&received), Arc::clone(&gone));
        let task = tokio::spawn(async move {
            let mut replies = replies.into_iter().peekable();
            let mut reply = Vec::new();
            while let Ok((stream, _)) = listener.accept().await {
                if replies.peek().is_some() {
                    reply = replies.next().unwrap();
                }
                tokio::spawn(serve(
                    stream,
                    reply.clone(),
                    Arc::clone(&log),
                    Arc::clone(&left),
                ));
            }
        });
        Self {
            base_url,
            received,
            gone,
            task,
        }
    }

    /// Returns the requests so far.
    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    /// Waits until a client has disconnected before its answer was complete.
    pub(crate) async fn client_gone(&self) {
        self.gone.notified().await;
    }
}

/// The settings of a model behind the server, with its key in the variable `KEY`.
pub(crate) fn settings(endpoint: &Endpoint) -> EndpointSettings {
    EndpointSettings {
        base_url: endpoint.base_url.clone(),
        model: "small".to_owned(),
        api_key_env: Some("KEY".to_owned()),
        first_token_timeout: Duration::from_secs(20),
        token_gap_timeout: Duration::from_secs(20),
        ..EndpointSettings::default()
    }
}

async fn serve(
    mut stream: TcpStream,
    reply: Vec<Step>,
    log: Arc<Mutex<Vec<Received>>>,
    gone: Arc<Notify>,
) {
    let Some(request) = read_request(&mut stream).await else {
        return;
    };
    log.lock().unwrap().push(request.clone());
    for step in reply {
        let alive = match step {
            Step::Send(text) => stream.write_all(text.as_bytes()).await.is_ok(),
            Step::Answer(make) => {
                let text = make(&request.body);
                stream.write_all(text.as_bytes()).await.is_ok()
            }
            Step::SendForever(text) => {
                while stream.write_all(text.as_bytes()).await.is_ok() {}
                false
            }
            Step::Drip(text) => {
                while stream.write_all(text.as_bytes()).await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                false
            }
            Step::Silence => {
                let mut byte = [0];
                while matches!(stream.read(&mut byte).await, Ok(1..)) {}
                false
            }
        };
        if !alive {
            gone.notify_one();
            return;
        }
    }
    let _ = stream.shutdown().await;
}

async fn read_request(stream: &mut TcpStream) -> Option<Received> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).to_string();
            let length = head
                .lines()
                .find_map(|line| {
                    line.to_ascii_lowercase()
                        .strip_prefix("content-length:")
                        .map(|n| n.trim().parse().unwrap())
                })
                .unwrap_or(0_usize);
            if bytes.len() >= end + 4 + length {
                let body = serde_json::from_slice(&bytes[end + 4..end + 4 + length]).ok()?;
                return Some(Received { head, body });
            }
        }
        match stream.read(&mut chunk).await {
            Ok(count @ 1..) => bytes.extend_from_slice(&chunk[..count]),
            _ => return None,
        }
    }
}

/// The head of a streamed answer that ends with its connection.
pub(crate) fn stream_head() -> Step {
    Step::Send(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
            .to_owned(),
    )
}

/// One event.
pub(crate) fn event(data: &str) -> Step {
    Step::Send(format!("data: {data}\n\n"))
}

/// One event with a piece of text.
pub(crate) fn text(piece: &str) -> Step {
    event(&serde_json::json!({"choices": [{"delta": {"content": piece}}]}).to_string())
}

/// The last events of an answer.
pub(crate) fn end(reason: &str) -> Step {
    let stop = serde_json::json!({"choices": [{"delta": {}, "finish_reason": reason}]});
    let usage =
        serde_json::json!({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}});
    Step::Send(format!("data: {stop}\n\ndata: {usage}\n\ndata: [DONE]\n\n"))
}

/// A whole answer with a status that is not a success.
pub(crate) fn status(status: &str, headers: &str, body: &str) -> Vec<Step> {
    let length = body.len();
    vec![Step::Send(format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n{headers}\r\n{body}"
    ))]
}
