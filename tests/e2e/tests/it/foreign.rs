//! A client that shares no code with Tavern keeps to the contract by reflection alone.

use std::process::Command;

use testkit::{Stack, python, python_program};

use crate::edges::run;
use crate::text::write_file;

#[tokio::test(flavor = "multi_thread")]
async fn a_python_client_follows_breaks_and_resumes_a_run() -> anyhow::Result<()> {
    let stack = Stack::builder().separate().start().await?;
    play(client(&stack.address().replace("http://", ""))?).await
}

/// Returns the client of the server at `address`.
pub(crate) fn client(address: &str) -> anyhow::Result<Command> {
    let mut client = Command::new(python()?);
    client
        .arg(python_program("foreign_client.py"))
        .arg(address)
        .args([
            "--model-text",
            &write_file("a.txt", "one"),
            "--break-after",
            "2",
        ]);
    Ok(client)
}

/// Runs the client, which reads the run to its end.
pub(crate) async fn play(client: Command) -> anyhow::Result<()> {
    let printed = run(client).await?;
    let summary = printed.lines().last().unwrap_or_default();
    let summary: serde_json::Value = serde_json::from_str(summary)?;
    assert_eq!(
        summary["summary"]["state"], "RUN_STATE_SUCCEEDED",
        "{summary}"
    );
    assert_eq!(summary["summary"]["resumed"], true, "{summary}");
    Ok(())
}
