//! Pictures in the answers of the chat API of OpenAI.

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use testkit::{Stack, StackBuilder};

use super::client::Client;
use super::{expect, page};

const PICTURE: &str = "results/0123456789abcdef.png";

/// Asks an agent that shows a picture; returns its answer at once and in chunks.
async fn ask(stack: &Stack, agent: &str) -> anyhow::Result<[String; 2]> {
    let client = Client::of(stack, "any");
    let client = match stack.key() {
        Some(key) => client.with_key(key),
        // Clients of this API send a key always.
        None => client.with_key("sk-any"),
    };
    let mut answers = [String::new(), String::new()];
    for (answer, stream) in answers.iter_mut().zip([false, true]) {
        let messages = json!([{"role": "user", "content": "Draw the sales."}]);
        let body = json!({"model": agent, "stream": stream, "messages": messages}).to_string();
        let headers = format!(
            "content-type: application/json\r\ncontent-length: {}\r\n",
            body.len()
        );
        let path = "/v1/chat/completions";
        let answered = client
            .exchange("POST", path, &headers, body.as_bytes())
            .await?;
        let text = String::from_utf8(answered.body)?;
        ensure!(answered.status == 200, "{text}");
        if !stream {
            let message: Value = serde_json::from_str(&text)?;
            let content = &message["choices"][0]["message"]["content"];
            *answer = content.as_str().context("no content")?.to_owned();
            continue;
        }
        for line in text.lines().filter_map(|line| line.strip_prefix("data: {")) {
            let chunk: Value = serde_json::from_str(&format!("{{{line}"))?;
            let content = chunk["choices"][0]["delta"]["content"].as_str();
            answer.push_str(content.unwrap_or_default());
        }
    }
    Ok(answers)
}

/// Starts Tavern with the agent.
async fn start(builder: StackBuilder, directory: &tempfile::TempDir) -> anyhow::Result<Stack> {
    page::deploy(directory.path())?;
    builder.deploy(directory.path()).start().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_picture_is_a_link_where_everyone_may_follow_it() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let builder = Stack::builder().env(
        "TAVERN_GATEWAY__HTTP__PUBLIC_URL",
        "https://tavern.example/at/",
    );
    let stack = start(builder.separate(), &directory).await?;
    for answer in ask(&stack, "shower").await? {
        let (text, link) = answer.split_once("\n\n![").context(answer.clone())?;
        ensure!(text == "Done.", "{answer}");
        let address = "0123456789abcdef.png](https://tavern.example/at/v1/conversations/conv_";
        let rest = link.strip_prefix(address).context(answer.clone())?;
        let (_, path) = rest.split_once('/').context(answer.clone())?;
        ensure!(path == format!("files/{PICTURE})"), "{answer}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_leads_to_the_picture_of_a_cell() -> anyhow::Result<()> {
    const ADDRESS: &str = "https://tavern.example";
    let directory = tempfile::tempdir()?;
    page::deploy_analyst(directory.path())?;
    let builder = Stack::builder().env("TAVERN_GATEWAY__HTTP__PUBLIC_URL", ADDRESS);
    let builder = builder.separate().deploy(directory.path());
    let stack = builder.start().await?;
    for answer in ask(&stack, "analyst").await? {
        let (_, link) = answer.split_once("](").context(answer.clone())?;
        let address = link.trim_end_matches(')').strip_prefix(ADDRESS);
        let address = address.context(answer.clone())?;
        let files = Client::of(&stack, "any");
        let picture = expect(files.exchange("GET", address, "", b"").await?, 200)?;
        ensure!(picture.header("content-type") == "image/png");
        ensure!(picture.body.starts_with(b"\x89PNG"));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_picture_is_named_without_an_address_and_where_keys_exist() -> anyhow::Result<()> {
    let (one, two) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let closed = Stack::builder().with_keys().proven();
    let closed = closed.env("TAVERN_GATEWAY__HTTP__PUBLIC_URL", "https://tavern.example");
    let (open, closed) = tokio::try_join!(start(Stack::builder(), &one), start(closed, &two))?;
    for stack in [&open, &closed] {
        for answer in ask(stack, "shower").await? {
            ensure!(answer == format!("Done.\n\n{PICTURE}"), "{answer}");
        }
    }
    Ok(())
}
