//! An endpoint of a language model that refuses, as model APIs do, a native call without its result and a result
//! without its call.

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, Mutex};

use anyhow::Context;
use serde_json::{Value, json};
use testkit::repository;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// The wires that are spoken, as settings name them.
pub(crate) const PROVIDERS: [&str; 2] = ["openai", "anthropic"];

/// The calls of an answer to the user.
const CALLS: [(&str, &str, &str); 2] = [
    ("c1", "GetPlayerInfo", r#"{"player_id":"player123"}"#),
    ("c2", "ReadSampleWorldTool", r#"{"path":"no.such.place"}"#),
];

/// Its answer to a request that has the results.
pub(crate) const ANSWER: &str = "It is Elara.";

/// The endpoint; it requests two calls, and answers once it has their results.
pub(crate) struct ModelEndpoint {
    base_url: String,
    requests: Arc<Mutex<Vec<Value>>>,
    task: JoinHandle<()>,
}

impl Drop for ModelEndpoint {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ModelEndpoint {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let base_url = format!("http://{}/v1", listener.local_addr()?);
        let requests = Arc::<Mutex<Vec<Value>>>::default();
        let log = Arc::clone(&requests);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // A client that leaves is no concern of the endpoint.
                let _ = serve(stream, &log).await;
            }
        });
        Ok(Self {
            base_url,
            requests,
            task,
        })
    }

    /// Writes a deploy directory whose models are this endpoint, one for each wire.
    pub(crate) fn deploy(&self, directory: &Path) -> anyhow::Result<()> {
        let base_url = &self.base_url;
        let models = PROVIDERS.map(|provider| {
            format!(
                "[models.{provider}]\nprovider = \"{provider}\"\nbase_url = \"{base_url}\"\n\
                 model = \"m\"\nretries = 0\n"
            )
        });
        std::fs::write(directory.join("agent-runtime.toml"), models.concat())?;
        for empty in ["agents", "models", "workflows"] {
            std::fs::create_dir(directory.join(empty))?;
        }
        let plugins = repository().join("deploy/plugins");
        std::os::unix::fs::symlink(plugins, directory.join("plugins"))?;
        Ok(())
    }

    /// Returns the messages of each request so far: an author and its calls or results, as in
    /// `assistant+c1+c2` and `tool=c1`.
    pub(crate) fn asked(&self) -> Vec<Vec<String>> {
        let requests = self.requests.lock().map(|requests| requests.clone());
        let requests = requests.unwrap_or_default();
        requests.iter().map(shape).collect()
    }
}

async fn serve(mut stream: TcpStream, log: &Mutex<Vec<Value>>) -> anyhow::Result<()> {
    let (head, body) = read(&mut stream).await?;
    let is_openai = head.contains("/chat/completions");
    let answer = match problem(&body) {
        Some(problem) => {
            let error =
                json!({"type": "error", "error": {"type": "invalid_request", "message": problem}});
            response("400 Bad Request", &error)
        }
        None => response("200 OK", &answer(&body, is_openai)),
    };
    if let Ok(mut requests) = log.lock() {
        requests.push(body);
    }
    stream.write_all(answer.as_bytes()).await?;
    Ok(stream.shutdown().await?)
}

/// Reads a request: its head in lower case, and its body.
pub(crate) async fn read(stream: &mut TcpStream) -> anyhow::Result<(String, Value)> {
    let mut bytes = Vec::new();
    loop {
        if stream.read_buf(&mut bytes).await? == 0 {
            anyhow::bail!("the request has no end");
        }
        let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else {
            continue;
        };
        let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length:"));
        let length: usize = length
            .context("the request has no length")?
            .trim()
            .parse()?;
        if let Some(body) = bytes.get(end + 4..end + 4 + length) {
            return Ok((head, serde_json::from_slice(body)?));
        }
    }
}

fn response(status: &str, body: &Value) -> String {
    let body = body.to_string();
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
         connection: close\r\n\r\n{body}"
    )
}

/// Answers with calls where the user spoke last, and with a text where the tools did.
fn answer(request: &Value, is_openai: bool) -> Value {
    let last = shape(request).pop().unwrap_or_default();
    let done = last.contains('=');
    if is_openai {
        let call = |(id, name, arguments)| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
        let message = match done {
            true => json!({"role": "assistant", "content": ANSWER}),
            false => json!({"role": "assistant", "content": null, "tool_calls": CALLS.map(call)}),
        };
        let reason = if done { "stop" } else { "tool_calls" };
        let usage = json!({"prompt_tokens": 1, "completion_tokens": 1});
        return json!({"choices": [{"message": message, "finish_reason": reason}], "usage": usage});
    }
    let call = |(id, name, arguments): (&str, &str, &str)| {
        let input: Value = serde_json::from_str(arguments).unwrap_or_default();
        json!({"type": "tool_use", "id": id, "name": name, "input": input})
    };
    let content = match done {
        true => json!([{"type": "text", "text": ANSWER}]),
        false => json!(CALLS.map(call)),
    };
    let reason = if done { "end_turn" } else { "tool_use" };
    let usage = json!({"input_tokens": 1, "output_tokens": 1});
    json!({"type": "message", "content": content, "stop_reason": reason, "usage": usage})
}

/// Returns the author of each message with the ids of its calls and results, whichever wire it is.
fn shape(request: &Value) -> Vec<String> {
    let messages = request["messages"].as_array().into_iter().flatten();
    let of_message = |message: &Value| {
        let mut line = message["role"].as_str().unwrap_or_default().to_owned();
        let mut mark = |mark: &str, id: &Value| {
            line.push_str(mark);
            line.push_str(id.as_str().unwrap_or("?"));
        };
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            mark("+", &call["id"]);
        }
        if message["role"] == "tool" {
            mark("=", &message["tool_call_id"]);
        }
        for block in message["content"].as_array().into_iter().flatten() {
            match block["type"].as_str() {
                Some("tool_use") => mark("+", &block["id"]),
                Some("tool_result") => mark("=", &block["tool_use_id"]),
                _ => {}
            }
        }
        line
    };
    messages.map(of_message).collect()
}

/// Returns the reason to refuse a request: the results of an answer's calls must follow it
/// directly, and no id may name two calls.
fn problem(request: &Value) -> Option<String> {
    let mut open: Vec<String> = Vec::new();
    let mut used = HashSet::new();
    for line in shape(request).into_iter().chain(["end".to_owned()]) {
        let (author, calls) = line.split_once('+').unwrap_or((&line, ""));
        let mut results = author.split('=').skip(1).map(str::to_owned);
        if author.contains('=') {
            if let Some(lone) = results.find(|id| !open.contains(id)) {
                return Some(format!("the result {lone} has no call"));
            }
            let given: Vec<String> = author.split('=').skip(1).map(str::to_owned).collect();
            open.retain(|id| !given.contains(id));
        } else if !open.is_empty() {
            return Some(format!("the calls {open:?} have no results"));
        }
        for id in calls.split('+').filter(|id| !id.is_empty()) {
            if !used.insert(id.to_owned()) {
                return Some(format!("the id {id} stands for two calls"));
            }
            open.push(id.to_owned());
        }
    }
    let is_anthropic = request["messages"][0]["content"].is_array();
    let declares = request["tools"]
        .as_array()
        .is_some_and(|tools| !tools.is_empty());
    (is_anthropic && !used.is_empty() && !declares).then(|| "the tools are not declared".to_owned())
}
