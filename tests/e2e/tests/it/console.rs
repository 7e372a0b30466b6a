//! The page at `/console`, in a browser.

use std::process::Command;

use anyhow::ensure;
use testkit::{APPROVER_KEY, Stack, repository, until};

use crate::ledger::{World, append, dispatched};
use crate::text::model_text;

#[tokio::test(flavor = "multi_thread")]
async fn the_page_sends_follows_cancels_tries_and_decides_in_a_browser() -> anyhow::Result<()> {
    let console = repository().join("console");
    ensure!(
        console.join("node_modules").exists(),
        "the packages of console/ are missing; run `make console`"
    );
    let mut world = World::new(Stack::all_in_one().await?).await?;
    let request = model_text(&append("ledger.append", "gift-3", 30_000));
    until(&world.stack.gateway(), request, dispatched).await?;
    world.await_effect("gift-3").await?;
    world.leave_in_doubt(&["gift-1", "gift-2"]).await?;
    let mut client = Command::new("node");
    client.arg(console.join("test/browser.mjs"));
    client.env("TAVERN_APPROVER_KEY", APPROVER_KEY);
    client.arg(world.stack.address());
    client.arg(repository().join("target/console/pictures"));
    let played = tokio::task::spawn_blocking(move || client.output()).await??;
    let printed = String::from_utf8_lossy(&played.stdout);
    let errors = String::from_utf8_lossy(&played.stderr);
    ensure!(played.status.success(), "{printed}\n{errors}");
    Ok(())
}
