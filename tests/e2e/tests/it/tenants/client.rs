//! A client that speaks JSON, of unary methods and of streams.

use anyhow::{Context, ensure};
use contracts::access::Role;
use grpc_kit::Transport;
use http::{Request, header};
use http_body_util::{BodyExt, Full};
use serde_json::Value;
use testkit::Stack;
use tonic::body::Body;
use tower::ServiceExt;

/// A client with a key.
#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) transport: Transport,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: String,
}

impl Client {
    /// Makes a key of a principal of a tenant, and a client that sends it.
    pub(super) async fn new(
        stack: &Stack,
        tenant: &str,
        principal: &str,
        role: Role,
    ) -> anyhow::Result<Self> {
        let transport = stack
            .transport_of_principal(tenant, principal, role)
            .await?;
        Ok(Self { transport })
    }

    /// Calls a unary method (`package.Service/Method`).
    pub(super) async fn call(&self, method: &str, request: &Value) -> anyhow::Result<Answer> {
        let body = request.to_string().into_bytes();
        self.send(method, "application/json", body).await
    }

    /// Calls a method whose answer is a stream.
    pub(super) async fn stream(&self, method: &str, request: &Value) -> anyhow::Result<Answer> {
        let text = request.to_string();
        let mut body = vec![0];
        body.extend_from_slice(&u32::try_from(text.len())?.to_be_bytes());
        body.extend_from_slice(text.as_bytes());
        self.send(method, "application/connect+json", body).await
    }

    /// Returns the answer of a unary method, which succeeds.
    pub(super) async fn ok(&self, method: &str, request: &Value) -> anyhow::Result<Value> {
        let answer = self.call(method, request).await?;
        ensure!(answer.status == 200, "{method}: {}", answer.body);
        serde_json::from_str(&answer.body).with_context(|| answer.body.clone())
    }

    /// Returns the elements of a list, which is read in pages.
    pub(super) async fn list(
        &self,
        method: &str,
        mut request: Value,
        field: &str,
    ) -> anyhow::Result<Vec<Value>> {
        let mut all = Vec::new();
        request["pageSize"] = 7.into();
        loop {
            let mut page = self.ok(method, &request).await?;
            if let Value::Array(elements) = page[field].take() {
                all.extend(elements);
            }
            match page["nextPageToken"].as_str() {
                Some(next) if !next.is_empty() => request["pageToken"] = next.into(),
                _ => return Ok(all),
            }
        }
    }

    async fn send(&self, method: &str, content: &str, body: Vec<u8>) -> anyhow::Result<Answer> {
        let request = Request::post(format!("/{method}"))
            .header(header::CONTENT_TYPE, content)
            .header("connect-protocol-version", "1")
            .header("connect-timeout-ms", "2000")
            .body(Body::new(Full::from(body)))?;
        let answer = self.transport.outermost().oneshot(request).await?;
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await?.to_bytes();
        Ok(Answer {
            status,
            body: String::from_utf8_lossy(&body).into_owned(),
        })
    }
}
