//! An issuer of tokens, in Python.

use std::path::PathBuf;

use anyhow::Context;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::http::exchange;
use crate::python::PythonServer;

/// An issuer that signs tokens and serves its keys over HTTPS; it ends with this.
#[derive(Debug)]
pub struct TestIssuer {
    server: PythonServer,
    directory: TempDir,
}

impl TestIssuer {
    /// The claim `iss` of its tokens.
    pub const ISS: &'static str = "https://login.company.example";

    /// Starts one with keys of its own.
    ///
    /// # Errors
    /// The program does not come up.
    pub async fn start() -> anyhow::Result<Self> {
        let directory = tempfile::tempdir()?;
        let server = PythonServer::start("issuer.py", directory.path(), directory.path()).await?;
        Ok(Self { server, directory })
    }

    /// Returns the file of the certificate that signed its server's.
    pub fn ca_file(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }

    /// Returns the address of its keys.
    ///
    /// # Errors
    /// The program did not write it.
    pub fn keys(&self) -> anyhow::Result<String> {
        Ok(std::fs::read_to_string(self.directory.path().join("keys"))?)
    }

    /// Returns a token of a key; `more` may have `alg` and `headers`.
    ///
    /// # Errors
    /// The program does not answer.
    pub async fn sign(&self, kid: &str, claims: &Value, more: &Value) -> anyhow::Result<String> {
        let mut request = json!({"kid": kid, "claims": claims});
        for (name, value) in more.as_object().into_iter().flatten() {
            request[name] = value.clone();
        }
        self.post("sign", &request).await
    }

    /// Publishes the key `next` in the place of `ed`.
    ///
    /// # Errors
    /// The program does not answer.
    pub async fn rotate(&self) -> anyhow::Result<()> {
        self.post("rotate", &json!({})).await.map(drop)
    }

    /// Makes reads of its keys get an answer with `status`, `body`, `repeat` and `headers`; an empty one ends that.
    ///
    /// # Errors
    /// The program does not answer.
    pub async fn answer(&self, answer: &Value) -> anyhow::Result<()> {
        self.post("answer", answer).await.map(drop)
    }

    /// Returns its set of keys.
    ///
    /// # Errors
    /// The program does not answer.
    pub async fn published(&self) -> anyhow::Result<String> {
        self.post("published", &json!({})).await
    }

    /// Returns the number of reads of its keys.
    ///
    /// # Errors
    /// The program does not answer.
    pub async fn reads(&self) -> anyhow::Result<u64> {
        Ok(self.post("reads", &json!({})).await?.parse()?)
    }

    async fn post(&self, path: &str, body: &Value) -> anyhow::Result<String> {
        let (head, body) = (format!("POST /{path}\r\n"), body.to_string());
        let answer = exchange(&self.server.uri(), &head, body.as_bytes(), |_| false).await?;
        let (head, body) = answer.split_once("\r\n\r\n").context("no answer")?;
        anyhow::ensure!(head.contains(" 200 "), "{answer}");
        Ok(body.to_owned())
    }
}
