//! The transcripts under `deploy/examples` have the same results in one process and in five.

use std::path::PathBuf;
use std::process::Command;

use testkit::{APPROVER_KEY, Stack, binary, repository};

#[tokio::test(flavor = "multi_thread")]
async fn all_transcripts_give_the_stated_results_in_five_processes() -> anyhow::Result<()> {
    let stack = Stack::builder().separate().start().await?;
    play(&stack)
}

#[tokio::test(flavor = "multi_thread")]
async fn all_transcripts_give_the_stated_results_in_five_processes_that_believe_only_services()
-> anyhow::Result<()> {
    let stack = Stack::builder().proven().start().await?;
    play(&stack)
}

#[tokio::test(flavor = "multi_thread")]
async fn all_transcripts_give_the_stated_results_in_five_processes_with_keys() -> anyhow::Result<()>
{
    let stack = Stack::builder().proven().with_keys().start().await?;
    // A transcript names the publisher of an event, which is the caller.
    let caller = key_file(&stack, "mara", &["--role", "invoker"])?;
    let of_approver = ["--role", "approver", "--group", "storykeeper"];
    let decider = key_file(&stack, "ada", &of_approver)?;
    let mut play = playing(&stack)?;
    play.arg("--key-file").arg(caller);
    play.arg("--approver-key-file").arg(decider);
    succeed(&mut play)
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

/// Plays all transcripts at a stack without keys.
pub(crate) fn play(stack: &Stack) -> anyhow::Result<()> {
    succeed(playing(stack)?.args(["--approver-key", APPROVER_KEY]))
}

fn playing(stack: &Stack) -> anyhow::Result<Command> {
    let mut play = Command::new(binary("tavern")?);
    play.args(["play", "--address", &stack.address(), "--examples"])
        .arg(repository().join("deploy/examples"));
    Ok(play)
}

fn succeed(command: &mut Command) -> anyhow::Result<()> {
    let played = command.output()?;
    let printed = String::from_utf8_lossy(&played.stdout);
    let errors = String::from_utf8_lossy(&played.stderr);
    assert!(played.status.success(), "{printed}\n{errors}");
    Ok(())
}

/// Creates a key for a principal, and returns its file.
fn key_file(stack: &Stack, principal: &str, options: &[&str]) -> anyhow::Result<PathBuf> {
    let file = stack.directory().join(principal).with_extension("key");
    let mut create = Command::new(binary("tavern")?);
    create.args(["keys", "create", principal, "--address", &stack.address()]);
    create.args(options).arg("--out").arg(&file);
    create.arg("--key-file").arg(stack.key_file());
    succeed(&mut create)?;
    Ok(file)
}
