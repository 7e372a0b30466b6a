//! A client that shares no code with Tavern keeps to the contract by reflection alone.

use std::process::Command;

use testkit::{Stack, python, python_program};

use crate::text::write_file;

#[tokio::test(flavor = "multi_thread")]
async fn a_python_client_follows_breaks_and_resumes_a_run() -> anyhow::Result<()> {
    let stack = Stack::builder().separate().start().await?;
    let address = stack.address().replace("http://", "");
    let client = Command::new(python()?)
        .arg(python_program("foreign_client.py"))
        .arg(&address)
        .args([
            "--model-text",
            &write_file("a.txt", "one"),
            "--break-after",
            "2",
        ])
        .output()?;
    let printed = String::from_utf8_lossy(&client.stdout);
    let errors = String::from_utf8_lossy(&client.stderr);
    assert!(client.status.success(), "{printed}\n{errors}");
    let summary = printed.lines().last().unwrap_or_default();
    let summary: serde_json::Value = serde_json::from_str(summary)?;
    assert_eq!(
        summary["summary"]["state"], "RUN_STATE_SUCCEEDED",
        "{summary}"
    );
    assert_eq!(summary["summary"]["resumed"], true, "{summary}");
    Ok(())
}
