//! Callers who have no business with a file.

use anyhow::{Context, ensure};
use contracts::access::Role;
use contracts::tavern::registry::v1::CreateKeyRequest;
use testkit::Stack;

use super::client::{Answer, Client};
use super::expect;

/// Makes a principal, and returns its key.
pub(super) async fn key(
    stack: &Stack,
    tenant: &str,
    principal: &str,
    role: Role,
) -> anyhow::Result<String> {
    let request = CreateKeyRequest {
        principal: principal.to_owned(),
        tenant: tenant.to_owned(),
        roles: vec![role.name().to_owned()],
        ..CreateKeyRequest::default()
    };
    let created = stack.identities().create_key(request).await?;
    Ok(created.into_inner().secret_key)
}

/// Returns the parts of a refusal that could tell one from another.
fn words(answer: &Answer) -> anyhow::Result<(u16, String)> {
    let error = answer.json()?;
    let message = error["message"].as_str().context("no message")?;
    Ok((answer.status, message.to_owned()))
}

async fn keep_out(stack: Stack) -> anyhow::Result<()> {
    stack.create_tenant("acme", 1, Vec::new()).await?;
    let bare = Client::of(&stack, "adas");
    let ada = bare
        .clone()
        .with_key(&key(&stack, "", "ada", Role::Invoker).await?);
    expect(ada.put("a.txt", "", b"ada's").await?, 201)?;
    for (tenant, name) in [("", "bob"), ("acme", "bob"), ("acme", "ada")] {
        let other = bare
            .clone()
            .with_key(&key(&stack, tenant, name, Role::Invoker).await?);
        let none = other.at("none");
        for (verb, path) in [
            ("GET", "a.txt"),
            ("GET", "b.txt"),
            ("HEAD", "a.txt"),
            ("DELETE", "a.txt"),
        ] {
            for headers in ["", "range: bytes=0-1\r\n", "if-match: *\r\n"] {
                let foreign = other.send(verb, path, headers, b"").await?;
                let unknown = none.send(verb, path, headers, b"").await?;
                ensure!(
                    (foreign.status, unknown.status) == (404, 404),
                    "{verb} {path}: {}",
                    foreign.status
                );
                if verb != "HEAD" {
                    ensure!(words(&foreign)? == words(&unknown)?, "{verb} {path}");
                    ensure!(!String::from_utf8_lossy(&foreign.body).contains("ada"));
                }
            }
        }
        let (foreign, unknown) = (other.list("").await?, none.list("").await?);
        ensure!(words(&foreign)? == words(&unknown)? && foreign.status == 404);
        let put = other.put("evil.txt", "", b"evil").await?;
        match tenant {
            // The conversation of this name in another tenant is another one.
            "acme" if name == "bob" => {
                expect(put, 201)?;
                expect(other.send("DELETE", "evil.txt", "", b"").await?, 204)?;
            }
            _ => ensure!(words(&put)? == words(&unknown)?, "{:?}", words(&put)?),
        }
    }
    let list = expect(ada.list("").await?, 200)?.json()?;
    ensure!(super::paths(&list) == ["a.txt"], "{list}");

    // A viewer reads its own files, and changes none.
    let viewer = bare
        .clone()
        .with_key(&key(&stack, "", "vera", Role::Viewer).await?);
    expect(viewer.put("a.txt", "", b"1").await?, 403)?;
    expect(viewer.send("DELETE", "a.txt", "", b"").await?, 403)?;
    expect(viewer.get("a.txt", "").await?, 404)?;
    for stranger in [bare.clone(), bare.clone().with_key("tvk_wrong")] {
        for verb in ["GET", "HEAD", "PUT", "DELETE"] {
            let answer = expect(stranger.send(verb, "a.txt", "", b"").await?, 401)?;
            ensure!(answer.header("www-authenticate") == "Bearer");
        }
        expect(stranger.list("").await?, 401)?;
    }
    browse(&ada).await
}

/// Requests of web pages, with the cookie of a login.
async fn browse(ada: &Client) -> anyhow::Result<()> {
    let key = ada.key.trim_start_matches("authorization: Bearer ").trim();
    let login = format!("{{\"key\": \"{key}\"}}");
    let headers = format!(
        "content-type: application/json\r\ncontent-length: {}\r\n",
        login.len()
    );
    let stranger = Client {
        key: String::new(),
        ..ada.clone()
    };
    let answer = stranger
        .exchange("POST", "/v1/login", &headers, login.as_bytes())
        .await?;
    let cookie = answer
        .header("set-cookie")
        .split(';')
        .next()
        .unwrap_or_default();
    let own = format!(
        "cookie: {cookie}\r\nsec-fetch-site: same-origin\r\norigin: http://{}\r\n",
        ada.host
    );
    let read = expect(stranger.get("a.txt", &own).await?, 200)?;
    ensure!(read.body == b"ada's");
    expect(stranger.put("b.txt", &own, b"1").await?, 201)?;
    expect(stranger.send("DELETE", "b.txt", &own, b"").await?, 204)?;
    for foreign in [
        "sec-fetch-site: cross-site\r\n",
        "origin: https://evil.example\r\n",
    ] {
        let headers = format!("cookie: {cookie}\r\n{foreign}");
        for verb in ["GET", "PUT", "DELETE"] {
            let answer = stranger.send(verb, "a.txt", &headers, b"").await?;
            ensure!(answer.status == 403, "{verb} {foreign}: {}", answer.status);
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_a_foreign_file_is_known_in_one_process() -> anyhow::Result<()> {
    keep_out(Stack::builder().with_keys().start().await?).await
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_a_foreign_file_is_known_in_five_processes() -> anyhow::Result<()> {
    keep_out(Stack::builder().with_keys().proven().start().await?).await
}
