//! The transcripts under `deploy/examples` have the same results in one process and in five.

use std::process::Command;

use testkit::{APPROVER_KEY, Stack, binary, repository};

#[tokio::test(flavor = "multi_thread")]
async fn all_transcripts_give_the_stated_results_in_five_processes() -> anyhow::Result<()> {
    let stack = Stack::builder().separate().start().await?;
    play(&stack)
}

#[tokio::test(flavor = "multi_thread")]
async fn all_transcripts_give_the_stated_results_in_one_process() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    play(&stack)
}

#[test]
fn a_transcript_that_differs_ends_the_demo_with_an_error() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let wrong = r#"{
        "title": "A wrong expectation",
        "steps": [{ "model_text": "Hello.", "expect": { "state": "succeeded", "text": "Good-bye." } }]
    }"#;
    std::fs::write(directory.path().join("wrong.json"), wrong)?;
    let demo = Command::new(binary("tavern")?)
        .arg("demo")
        .arg("--deploy-dir")
        .arg(repository().join("deploy"))
        .arg("--examples")
        .arg(directory.path())
        .output()?;
    let printed = String::from_utf8_lossy(&demo.stdout);
    assert!(!demo.status.success(), "{printed}");
    assert!(printed.contains("DIFFERS: text"), "{printed}");
    Ok(())
}

fn play(stack: &Stack) -> anyhow::Result<()> {
    let played = Command::new(binary("tavern")?)
        .args(["play", "--address", &stack.address(), "--examples"])
        .arg(repository().join("deploy/examples"))
        .args(["--approver-key", APPROVER_KEY])
        .output()?;
    let printed = String::from_utf8_lossy(&played.stdout);
    let errors = String::from_utf8_lossy(&played.stderr);
    assert!(played.status.success(), "{printed}\n{errors}");
    Ok(())
}
