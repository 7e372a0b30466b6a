//! The page at `/console`, in a browser.

use std::process::Command;

use anyhow::ensure;
use testkit::{APPROVER_KEY, Stack, repository};

#[tokio::test(flavor = "multi_thread")]
async fn the_page_sends_follows_cancels_and_tries_in_a_browser() -> anyhow::Result<()> {
    let console = repository().join("console");
    ensure!(
        console.join("node_modules").exists(),
        "the packages of console/ are missing; run `make console`"
    );
    let stack = Stack::all_in_one().await?;
    let mut client = Command::new("node");
    client.arg(console.join("test/browser.mjs"));
    client.env("TAVERN_APPROVER_KEY", APPROVER_KEY);
    client.arg(stack.address());
    client.arg(repository().join("target/console/pictures"));
    let played = tokio::task::spawn_blocking(move || client.output()).await??;
    let printed = String::from_utf8_lossy(&played.stdout);
    let errors = String::from_utf8_lossy(&played.stderr);
    ensure!(played.status.success(), "{printed}\n{errors}");
    Ok(())
}
