//! The page at `/console`, in a browser.

use std::path::Path;
use std::process::Command;

use anyhow::ensure;
use serde_json::json;
use testkit::{APPROVER_KEY, Stack, repository, until};

use crate::doubt::agent;
use crate::edges::run;
use crate::ledger::{World, append, dispatched};
use crate::text::model_text;

/// Returns a browser that plays a script of `console/test` with the page at `address`; its pictures
/// are stored in the directory `pictures` below the directory of the page.
pub(crate) fn client(script: &str, address: &str, pictures: &str) -> anyhow::Result<Command> {
    let console = repository().join("console");
    ensure!(
        console.join("node_modules").exists(),
        "the packages of console/ are missing; run `make console`"
    );
    let mut client = Command::new("node");
    client.arg(console.join("test").join(script));
    client.env("TAVERN_APPROVER_KEY", APPROVER_KEY);
    client.arg(address);
    client.arg(repository().join("target/console").join(pictures));
    Ok(client)
}

/// Plays `browser.mjs` with the page of a stack.
pub(crate) async fn play(stack: Stack, client: Command) -> anyhow::Result<()> {
    let mut world = World::new(stack).await?;
    let request = model_text(&append("ledger.append", "gift-3", 30_000));
    until(&world.stack.gateway(), request, dispatched).await?;
    world.await_effect("gift-3").await?;
    world.leave_in_doubt(&["gift-1", "gift-2"]).await?;
    run(client).await.map(drop)
}

/// Writes an agent that answers three messages, each only if the request holds the earlier ones.
fn friend(deploy: &Path) -> anyhow::Result<String> {
    let settings = agent(deploy, "friend", "CodeInterpreter:execute", "")?;
    let mut roles = vec!["system"];
    let far = "on".repeat(200);
    let answers = [
        "Hello, Mara.".to_owned(),
        "Well, Mara.".to_owned(),
        format!("Goodbye, Mara. {far}"),
    ];
    let turns = answers.map(|answer| {
        roles.push("user");
        let expect = json!({"roles": roles, "contains": ["My name is Mara."]});
        roles.push("assistant");
        json!({"expect": expect, "answer": {"text": answer}})
    });
    let script = json!({ "turns": turns });
    std::fs::write(deploy.join("models/friend.json"), script.to_string())?;
    Ok(settings)
}

/// Writes agents whose calls wait for people, the rules that make one of them wait, and a plugin.
fn deploy(directory: &Path) -> anyhow::Result<()> {
    for name in ["agents", "models", "plugins", "workflows"] {
        std::fs::create_dir(directory.join(name))?;
    }
    for name in ["approvals.json", "workflows/grant_item.json"] {
        std::fs::copy(repository().join("deploy").join(name), directory.join(name))?;
    }
    let manifest = "name: first-aid\nversion: 1.0.0\ndescription: Says what to do until help is there.\n\
                    configOptions: [{key: extensions.first-aid.number, type: string, default: '112'}]\n";
    std::fs::create_dir(directory.join("plugins/first-aid"))?;
    std::fs::write(directory.join("plugins/first-aid/plugin.yaml"), manifest)?;
    let gift = "<ACTION><workflow:grant_item><item>ring</item><to>player</to><value>80</value>\
                </workflow:grant_item></ACTION>";
    let question = "<ACTION><ui:RequestUserInteraction><prompt>Which herb?</prompt>\
                    <options>sage</options><options>moonmoss</options></ui:RequestUserInteraction></ACTION>";
    let hasty = append("ledger.append_in_haste", "page", 3_000);
    let models = [
        friend(directory)?,
        agent(directory, "giver", "workflow:grant_item", gift)?,
        agent(directory, "asker", "ui:RequestUserInteraction", question)?,
        agent(directory, "doubter", "ledger.append_in_haste", &hasty)?,
    ];
    std::fs::write(directory.join("agent-runtime.toml"), models.concat())?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_sends_follows_cancels_tries_and_decides_in_a_browser() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let client = client("browser.mjs", &stack.address(), "pictures")?;
    play(stack, client).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_holds_a_conversation_and_finds_and_decides_all_that_waits() -> anyhow::Result<()>
{
    let directory = tempfile::tempdir()?;
    deploy(directory.path())?;
    let stack = Stack::builder().deploy(directory.path()).start().await?;
    let world = World::new(stack).await?;
    let client = client("people.mjs", &world.stack.address(), "pictures")?;
    run(client).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn people_with_keys_log_in_follow_decide_and_log_out() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    deploy(directory.path())?;
    let stack = Stack::builder().deploy(directory.path()).start().await?;
    let client = client("login.mjs", &stack.address(), "pictures")?;
    run(client).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_is_dropped_approved_set_called_switched_and_removed_on_the_page()
-> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    deploy(directory.path())?;
    let stack = Stack::builder().deploy(directory.path()).start().await?;
    let mut client = client("plugins.mjs", &stack.address(), "pictures")?;
    client.arg(directory.path().join("plugins"));
    run(client).await.map(drop)
}
