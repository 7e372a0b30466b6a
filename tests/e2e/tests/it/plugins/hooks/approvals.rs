//! Rules and people decide about the arguments as hooks left them.

use anyhow::{Context, ensure};
use contracts::tavern::common::v1::{ApprovalRequested, run_event::Kind};
use contracts::tavern::registry::v1::{
    ApprovalVerdict, CallToolRequest, call_tool_response::Record,
};
use serde_json::json;
use testkit::{Stack, eventually};

use super::{Backend, echo, grpc, install, output, plugin, replace};
use crate::approvals::decide;

#[tokio::test(flavor = "multi_thread")]
async fn r203_rules_and_people_see_the_arguments_that_hooks_left() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    super::masking::deploy(directory.path(), "echo:say", "Hello.")?;
    let rule = json!({
        "id": "large", "tools": ["echo:say"], "condition": "args.amount > 10", "action": "ask",
        "approvers": {"role": "storykeeper"},
    });
    let rules = json!({"rules": [rule]}).to_string();
    std::fs::write(directory.path().join("approvals.json"), rules)?;
    let stack = Stack::builder().deploy(directory.path()).start().await?;
    echo(&stack).await?;
    let backend = Backend::start(&stack, "hooks", |_, act| {
        Ok(match act["point"].as_str() {
            Some("tool:before-call") => replace("/call/arguments/amount", json!(50)),
            _ => json!({"action": "continue"}),
        })
    });
    let backend = backend.await?;
    let hooks = [
        grpc("raise", "tool:before-call", json!({})),
        grpc("seen", "approval:requested", json!({})),
    ];
    install(&stack, &plugin("amounts", &hooks, &[])?).await?;
    let request = CallToolRequest {
        tool_id: "echo:say".to_owned(),
        arguments_json: json!({"amount": 1}).to_string(),
        effect_id: "raised".to_owned(),
        ..CallToolRequest::default()
    };
    let mut stream = stack.calls().call_tool(request).await?.into_inner();
    let mut asked: Option<ApprovalRequested> = None;
    let result = loop {
        let response = stream.message().await?.context("the stream has a result")?;
        match response.record.context("a record")? {
            Record::Result(result) => break result,
            Record::Event(event) => {
                if let Some(Kind::ApprovalRequested(requested)) = event.kind {
                    let id = requested.approval_id.clone();
                    asked = Some(requested);
                    decide(&stack, id, ApprovalVerdict::Approve, false).await?;
                }
            }
        }
    };
    ensure!(asked.is_some(), "the rule applies to the final arguments");
    ensure!(output(&result)? == json!({"amount": 50}), "{result:?}");
    ensure!(backend.asked("tool:before-call").len() == 1, "asked once");
    let seen = eventually("the observer", || async {
        backend.asked("approval:requested").pop()
    });
    let seen = seen.await?;
    ensure!(
        seen["approval"]["arguments"] == json!({"amount": 50}),
        "{seen}"
    );
    Ok(())
}
