//! The page at `/console`, in a browser.

use std::process::Command;

use anyhow::ensure;
use testkit::{APPROVER_KEY, Stack, repository, until};

use crate::edges::run;
use crate::ledger::{World, append, dispatched};
use crate::text::model_text;

#[tokio::test(flavor = "multi_thread")]
async fn the_page_sends_follows_cancels_tries_and_decides_in_a_browser() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let client = client(&stack.address(), "pictures")?;
    play(stack, client).await
}

/// Returns the browser, which reaches the page at `address`; pictures of it stand in the directory `pictures`
/// below that of the page.
pub(crate) fn client(address: &str, pictures: &str) -> anyhow::Result<Command> {
    let console = repository().join("console");
    ensure!(
        console.join("node_modules").exists(),
        "the packages of console/ are missing; run `make console`"
    );
    let mut client = Command::new("node");
    client.arg(console.join("test/browser.mjs"));
    client.env("TAVERN_APPROVER_KEY", APPROVER_KEY);
    client.arg(address);
    client.arg(repository().join("target/console").join(pictures));
    Ok(client)
}

/// Plays the page of a stack.
pub(crate) async fn play(stack: Stack, client: Command) -> anyhow::Result<()> {
    let mut world = World::new(stack).await?;
    let request = model_text(&append("ledger.append", "gift-3", 30_000));
    until(&world.stack.gateway(), request, dispatched).await?;
    world.await_effect("gift-3").await?;
    world.leave_in_doubt(&["gift-1", "gift-2"]).await?;
    run(client).await.map(drop)
}
