//! An answer that a kill cut off is void: the log records it, and no client of the chat API reads
//! it twice.

use std::path::Path;

use anyhow::{Context, ensure};
use contracts::tavern::common::v1::run_event::Kind;
use contracts::watch::voids_answer;
use serde_json::{Value, json};
use testkit::{Stack, collect, exchange};

const BEFORE: &str = "It rains, and it rains, and it rains until the evening comes.";
const ANEW: &str = "\n\n(The text above is void. The answer follows.)\n\n";

/// Writes an agent whose model answers with a text, in pieces `delay_ms` apart, or all at once.
fn prepare(deploy: &Path, text: &str, pieces: bool, delay_ms: u64) -> anyhow::Result<()> {
    for directory in ["agents", "models", "plugins", "workflows"] {
        std::fs::create_dir_all(deploy.join(directory))?;
    }
    let profile = json!({"id": "poet", "name": "poet", "tool_ids_inventory": [],
                         "custom_metadata": {"tavern": {"model": "poet"}}});
    std::fs::write(deploy.join("agents/poet.json"), profile.to_string())?;
    let chunk = if pieces { 3 } else { 0 };
    let answer = json!({"thinking": "Hm, the weather.", "text": text, "chunk": chunk, "delay": format!("{delay_ms}ms")});
    let script = json!({"turns": [{"answer": answer}]});
    std::fs::write(deploy.join("models/poet.json"), script.to_string())?;
    let models = "[models.poet]\nprovider = \"scripted\"\nscript = \"poet.json\"\n";
    Ok(std::fs::write(deploy.join("agent-runtime.toml"), models)?)
}

/// Sends a request over the chat API, always with the same key, and returns the answer as far as
/// `enough` of it has arrived.
async fn ask(stack: &Stack, stream: bool, enough: impl Fn(&str) -> bool) -> anyhow::Result<String> {
    let body = json!({
        "model": "poet", "stream": stream, "temperature": 0.5, "max_tokens": 100,
        "messages": [{"role": "user", "content": "How is the weather?"}],
    });
    let head = "POST /v1/chat/completions\r\ncontent-type: application/json\r\n\
                idempotency-key: weather\r\n";
    exchange(&stack.address(), head, body.to_string().as_bytes(), enough).await
}

/// Returns the id of the run of a streamed answer, and a field of its deltas joined.
fn streamed(answer: &str, field: &str) -> anyhow::Result<(String, String)> {
    let chunks = answer
        .lines()
        .filter_map(|line| line.strip_prefix("data: {"));
    let (mut run_id, mut joined) = (String::new(), String::new());
    for chunk in chunks {
        // The last one may be cut.
        let Ok(chunk) = serde_json::from_str::<Value>(&format!("{{{chunk}")) else {
            break;
        };
        joined += chunk["choices"][0]["delta"][field].as_str().unwrap_or("");
        run_id = chunk["id"].as_str().unwrap_or_default().to_owned();
    }
    Ok((run_id.trim_start_matches("chatcmpl-").to_owned(), joined))
}

/// Kills the service while the model writes, lets the model answer otherwise afterwards, and
/// returns the text that clients of the chat API read: the stream before the kill, the stream after
/// it, and the answer in one piece.
async fn play(after: &str, delay_ms: u64) -> anyhow::Result<[String; 3]> {
    let deploy = tempfile::tempdir()?;
    prepare(deploy.path(), BEFORE, true, 100)?;
    let mut stack = Stack::builder().deploy(deploy.path()).start().await?;
    let begun = |answer: &str| {
        streamed(answer, "content").is_ok_and(|(_, text)| text.starts_with("It rains, and"))
    };
    let first = ask(&stack, true, begun).await?;
    ensure!(first.contains("x-accel-buffering: no"), "{first}");
    stack.kill()?;
    prepare(deploy.path(), after, false, delay_ms)?;
    stack.restart().await?;
    let second = ask(&stack, true, |answer| answer.contains("data: [DONE]")).await?;
    ensure!(
        second.contains("\n: ") == (delay_ms > 10_000),
        "a comment while nothing comes: {second}"
    );
    let (run_id, text) = streamed(&second, "content")?;
    let (_, thoughts) = streamed(&second, "reasoning")?;
    ensure!(thoughts == "Hm, the weather.", "{thoughts}");
    let run = collect(&stack.runs(), &run_id, 0).await?;
    let resets = run.events.iter().filter(
        |event| matches!(&event.kind, Some(Kind::OutputReset(reset)) if voids_answer(reset)),
    );
    ensure!(resets.count() == 1, "{:?}", run.events);
    let whole = ask(&stack, false, |_| false).await?;
    let (_, body) = whole.split_once("\r\n\r\n").context("an answer")?;
    let begin = body.find('{').context("an object")?;
    let end = body.rfind('}').context("an object")?;
    let whole: Value = serde_json::from_str(&body[begin..=end])?;
    let whole = &whole["choices"][0]["message"]["content"];
    Ok([
        streamed(&first, "content")?.1,
        text,
        whole.as_str().context("a text")?.to_owned(),
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_given_again_after_a_kill_is_read_once() -> anyhow::Result<()> {
    let [before, stream, whole] = play(BEFORE, 0).await?;
    ensure!(
        BEFORE.starts_with(&before) && before.len() < BEFORE.len(),
        "{before}"
    );
    ensure!(stream == BEFORE, "{stream}");
    ensure!(whole == BEFORE, "{whole}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn another_answer_after_a_kill_is_told_apart_from_the_one_before() -> anyhow::Result<()> {
    let after = "It snows.";
    // So long without a word, the connection is kept open by a comment.
    let [before, stream, whole] = play(after, 11_000).await?;
    let apart = stream
        .strip_suffix(after)
        .and_then(|text| text.strip_suffix(ANEW));
    ensure!(
        apart.is_some_and(|text| text.starts_with(&before)),
        "{stream}"
    );
    ensure!(whole == after, "{whole}");
    Ok(())
}
