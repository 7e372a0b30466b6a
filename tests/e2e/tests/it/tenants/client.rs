//! A client that speaks JSON, of unary methods and of streams.

use anyhow::{Context, ensure};
use serde_json::Value;
use testkit::exchange;

/// A client with a key.
#[derive(Clone, Debug)]
pub(super) struct Client {
    address: String,
    pub(super) key: String,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: String,
}

impl Client {
    pub(super) fn new(address: String, key: String) -> Self {
        Self { address, key }
    }

    /// Calls a unary method (`package.Service/Method`).
    pub(super) async fn call(&self, method: &str, request: &Value) -> anyhow::Result<Answer> {
        let body = request.to_string().into_bytes();
        self.send(method, "application/json", &body).await
    }

    /// Calls a method whose answer is a stream.
    pub(super) async fn stream(&self, method: &str, request: &Value) -> anyhow::Result<Answer> {
        let text = request.to_string();
        let mut body = vec![0];
        body.extend_from_slice(&u32::try_from(text.len())?.to_be_bytes());
        body.extend_from_slice(text.as_bytes());
        self.send(method, "application/connect+json", &body).await
    }

    /// Returns the answer of a unary method, which succeeds.
    pub(super) async fn ok(&self, method: &str, request: &Value) -> anyhow::Result<Value> {
        let answer = self.call(method, request).await?;
        ensure!(answer.status == 200, "{method}: {}", answer.body);
        serde_json::from_str(&answer.body).with_context(|| answer.body.clone())
    }

    async fn send(&self, method: &str, content: &str, body: &[u8]) -> anyhow::Result<Answer> {
        let head = format!(
            "POST /{method}\r\ncontent-type: {content}\r\nconnect-protocol-version: 1\r\n\
             connect-timeout-ms: 2000\r\nauthorization: Bearer {}\r\n",
            self.key
        );
        let answer = exchange(&self.address, &head, body, |_| false).await?;
        let (head, body) = answer
            .split_once("\r\n\r\n")
            .context("an answer has a head")?;
        let status = head.split(' ').nth(1).context("an answer has a status")?;
        Ok(Answer {
            status: status.parse()?,
            body: body.to_owned(),
        })
    }
}
