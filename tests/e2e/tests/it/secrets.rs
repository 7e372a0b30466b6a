//! The secret of a key is in its owner's file, and in no other file, log line, event or span.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use contracts::tavern::gateway::v1::{CallsTarget, gateway_service_client::GatewayServiceClient};
use contracts::tavern::registry::v1::{
    CreateKeyRequest, ListPrincipalsRequest, RevokeKeysRequest, RotateKeyRequest,
};
use testkit::{PythonServer, Stack, eventually, exchange, invoke};

use crate::text::{calls, write_file};

/// Returns the files below a directory in which a text occurs.
fn holders(directory: &Path, text: &str) -> anyhow::Result<Vec<PathBuf>> {
    let mut holders = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            holders.extend(holders_in(&path, text)?);
        } else if std::fs::read(&path)?
            .windows(text.len())
            .any(|part| part == text.as_bytes())
        {
            holders.push(path);
        }
    }
    Ok(holders)
}

/// Does the same for a directory that may vanish meanwhile, as those of scripts do.
fn holders_in(directory: &Path, text: &str) -> anyhow::Result<Vec<PathBuf>> {
    match directory.exists() {
        true => holders(directory, text),
        false => Ok(Vec::new()),
    }
}

/// Returns the longest part of a credential.
fn secret_of(credential: &str) -> &str {
    let parts = credential.split('_');
    parts.max_by_key(|part| part.len()).unwrap_or_default()
}

/// Sends a key by every kind of client, well and badly. Returns the cookie and the ticket that it was given.
async fn use_key(address: &str, ada: &str, admin: &str) -> anyhow::Result<(String, String)> {
    let login = format!("{{\"key\": \"{ada}\"}}");
    let head = "POST /v1/login\r\ncontent-type: application/json\r\n";
    let answer = exchange(address, head, login.as_bytes(), |_| false).await?;
    let cookie = answer.split("tavern_login=").nth(1);
    let cookie = cookie.and_then(|rest| rest.split(';').next());
    let cookie = cookie.with_context(|| answer.clone())?.to_owned();
    let head = format!("POST /v1/ticket\r\nauthorization: Bearer {ada}\r\n");
    let answer = exchange(address, &head, b"", |_| false).await?;
    let ticket = answer.split("\"ticket\":\"").nth(1);
    let ticket = ticket.and_then(|rest| rest.split('"').next());
    let ticket = ticket.with_context(|| answer.clone())?.to_owned();
    for head in [
        format!("GET /v1/models\r\nauthorization: Bearer {ada}\r\n"),
        format!("GET /v1/models\r\ncookie: tavern_login={cookie}\r\n"),
        format!("GET /v1/models\r\nauthorization: Bearer {ada}x\r\n"),
        format!(
            "GET /v1/models\r\nauthorization: Bearer {ada}\r\nauthorization: Bearer {admin}\r\n"
        ),
        format!("GET /v1/models\r\nauthorization: Basic {ada}\r\n"),
        format!("GET /v1/models?key={ada}\r\n"),
        format!("GET /{ada}\r\n"),
        format!("GET /v1/runs/turn_1/events?ticket={ticket}\r\n"),
        format!("POST /v1/logout\r\ncookie: tavern_login={cookie}\r\n"),
    ] {
        exchange(address, &head, b"", |_| false).await?;
    }
    Ok((cookie, ticket))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_is_in_no_file_no_log_line_and_no_span() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let out = directory.path().join("telemetry.jsonl");
    let receiver = PythonServer::start("otlp_receiver.py", &out, directory.path()).await?;
    let mut stack = Stack::builder()
        .env("TAVERN__TELEMETRY__OTLP_ENDPOINT", receiver.uri())
        .env("TAVERN__TELEMETRY__LOG_FILTER", "debug")
        .with_keys()
        .start()
        .await?;
    let admin = std::fs::read_to_string(stack.key_file())?;
    let request = CreateKeyRequest {
        principal: "ada".to_owned(),
        roles: vec!["invoker".to_owned()],
        ..CreateKeyRequest::default()
    };
    let ada = stack.identities().create_key(request).await?;
    let ada = ada.into_inner().secret_key;
    let request = RotateKeyRequest {
        principal: "ada".to_owned(),
        ..RotateKeyRequest::default()
    };
    let rotated = stack.identities().rotate_key(request).await?;
    let rotated = rotated.into_inner().secret_key;

    // Administrative changes are recorded before their requests are checked, with a key in the wrong place too.
    for misplaced in [ada.as_str(), secret_of(&ada)] {
        let request = CreateKeyRequest {
            principal: misplaced.to_owned(),
            roles: vec![misplaced.to_owned()],
            scopes: vec![misplaced.to_owned()],
            ..CreateKeyRequest::default()
        };
        ensure!(stack.identities().create_key(request).await.is_err());
        let request = RevokeKeysRequest {
            key_id: misplaced.to_owned(),
            ..RevokeKeysRequest::default()
        };
        ensure!(stack.identities().revoke_keys(request).await.is_err());
    }

    let transport = stack.transport_with(Some(&ada));
    let text = calls(CallsTarget {
        text: write_file("a.txt", "x"),
        ..CallsTarget::default()
    });
    invoke(&GatewayServiceClient::new(transport.outermost()), text).await?;
    let (cookie, ticket) = use_key(&stack.address(), &ada, &admin).await?;
    let listed = stack.identities();
    let listed = listed
        .clone()
        .list_principals(ListPrincipalsRequest::default())
        .await?;
    let listed = format!("{listed:?}");

    stack.terminate()?;
    eventually("the spans to arrive", || async {
        let spans = std::fs::read_to_string(&out).unwrap_or_default();
        spans.contains("InvokeText").then_some(())
    })
    .await?;
    for credential in [&admin, &ada, &rotated, &cookie, &ticket] {
        let secret = secret_of(credential);
        ensure!(secret.len() >= 32, "no secret: {} characters", secret.len());
        let mut found = holders(stack.directory(), secret)?;
        found.retain(|path| *path != stack.key_file());
        ensure!(found.is_empty(), "a secret is in {found:?}");
        ensure!(
            holders(directory.path(), secret)?.is_empty(),
            "a secret is in a span or a log"
        );
        ensure!(!listed.contains(secret), "a secret is listed");
    }
    Ok(())
}
