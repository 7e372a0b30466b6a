//! The tools that an agent may call: its inventory and its own rules, enforced and explained (R503,
//! G801).

use std::process::Command;

use anyhow::Context;
use contracts::tavern::common::v1::{CallStatus, run_event::Kind};
use contracts::tavern::gateway::v1::{
    AgentTarget, CallsTarget, InvokeTextRequest, ToolScope, agent_target::Input,
};
use serde_json::json;
use testkit::{Stack, binary, invoke};

use crate::deliberation::put;
use crate::text::{calls, turn, write_file};

/// Writes files, but none whose name begins with `crown`.
fn steward() -> serde_json::Value {
    json!({
        "id": "steward",
        "tool_ids_inventory": ["FileOperator.WriteFile"],
        "custom_metadata": {"tavern": {"approvals": [{
            "id": "no_crowns",
            "tools": ["FileOperator.*"],
            "condition": "args.filePath.startsWith('crown')",
            "action": "deny",
        }]}},
    })
}

fn of_turn(file: &str) -> InvokeTextRequest {
    turn(AgentTarget {
        profile_id: "steward".to_owned(),
        input: Some(Input::ModelText(write_file(file, "x"))),
        ..AgentTarget::default()
    })
}

fn of_text(file: &str) -> InvokeTextRequest {
    calls(CallsTarget {
        text: write_file(file, "x"),
        scope: Some(ToolScope {
            profile_id: "steward".to_owned(),
            ..ToolScope::default()
        }),
        ..CallsTarget::default()
    })
}

/// Returns the status of the one call, and the code of its error.
async fn ended(stack: &Stack, request: InvokeTextRequest) -> anyhow::Result<(CallStatus, String)> {
    let followed = invoke(&stack.gateway(), request).await?;
    let settled = followed
        .events
        .into_iter()
        .find_map(|event| match event.kind {
            Some(Kind::CallSettled(settled)) => settled.result,
            _ => None,
        });
    let result = settled.context("the call has ended")?;
    let status = result.status();
    Ok((
        status,
        result.error.map(|error| error.code).unwrap_or_default(),
    ))
}

#[tokio::test(flavor = "multi_thread")]
async fn g801_the_rules_of_a_profile_hold_for_its_turns_and_for_texts_in_its_name()
-> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    put(&stack, &steward()).await?;
    let denied = (CallStatus::Rejected, "denied_by_rule".to_owned());
    let done = (CallStatus::Succeeded, String::new());
    assert_eq!(ended(&stack, of_turn("crown.txt")).await?, denied);
    assert_eq!(ended(&stack, of_turn("herb.txt")).await?, done);
    assert_eq!(ended(&stack, of_text("crown.txt")).await?, denied);
    assert_eq!(ended(&stack, of_text("herb.txt")).await?, done);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn r503_what_blocks_a_tool_is_explained_on_the_command_line_in_five_processes()
-> anyhow::Result<()> {
    let stack = Stack::builder().separate().start().await?;
    put(&stack, &steward()).await?;
    let node = ["--workflow", "look_up", "--node", "llm"];
    for (tool, scope, says) in [
        (
            "FileOperator.DeleteFile",
            &["--agent", "steward"][..],
            Err("Add FileOperator.DeleteFile to tool_ids_inventory of the profile steward."),
        ),
        (
            "FileOperator.WriteFile",
            &["--agent", "steward"],
            Ok("Then the rule 'steward/no_crowns' refuses the call where"),
        ),
        (
            "GetPlayerInfo",
            &node,
            Ok("workflow look_up, /availableTools/initial, to which node llm adds"),
        ),
        (
            "system:get_current_time",
            &node,
            Err("Add system:get_current_time to availableTools.initial of the workflow look_up"),
        ),
        ("GetPlayerInf", &[], Err("Did you mean GetPlayerInfo?")),
    ] {
        let mut command = Command::new(binary("tavern")?);
        command.args(["tools", "explain", tool]).args(scope);
        let output = command.env("TAVERN_ADDRESS", stack.address()).output()?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let (Ok(part) | Err(part)) = says;
        assert!(printed.contains(part), "{tool}: {printed}");
        assert_eq!(output.status.success(), says.is_ok(), "{tool}: {printed}");
    }
    Ok(())
}
