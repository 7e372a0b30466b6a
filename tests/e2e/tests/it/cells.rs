//! Cells of the code interpreter: what one leaves, the next one of its conversation finds.

use anyhow::Context;
use contracts::tavern::common::v1::{CallResult, CallStatus, run_event::Kind};
use contracts::tavern::gateway::v1::CallsTarget;
use serde_json::{Value, json};
use testkit::{Stack, invoke};

use crate::text::calls;

/// Runs a cell of Python in a conversation, as a model would ask for it.
async fn cell(stack: &Stack, conversation: &str, code: &str) -> anyhow::Result<CallResult> {
    let text = format!(
        "<ACTION><CodeInterpreter:run_cell><language>python</language>\
         <code><![CDATA[{code}]]></code></CodeInterpreter:run_cell></ACTION>"
    );
    let request = calls(CallsTarget {
        text,
        conversation_id: conversation.to_owned(),
        ..CallsTarget::default()
    });
    let run = invoke(&stack.gateway(), request).await?;
    let mut kinds = run.events.into_iter().filter_map(|event| event.kind);
    let result = kinds.find_map(|kind| match kind {
        Kind::CallSettled(settled) => settled.result,
        _ => None,
    });
    result.context("the call has a result")
}

fn output(result: &CallResult) -> anyhow::Result<Value> {
    Ok(serde_json::from_str(&result.output_json)?)
}

#[tokio::test(flavor = "multi_thread")]
async fn variables_stay_for_their_conversation_and_for_no_other() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let first = cell(&stack, "a", "sacks = 12").await?;
    assert_eq!(
        output(&first)?,
        json!({"cell": 1, "stdout": "", "stderr": ""})
    );
    let second = cell(&stack, "a", "print('x')\nsacks * 2").await?;
    let expected = json!({"cell": 2, "stdout": "x\n", "stderr": "", "value": "24"});
    assert_eq!(output(&second)?, expected);
    let other = cell(&stack, "b", "sacks").await?;
    assert_eq!(other.status(), CallStatus::Failed);
    let error = other.error.context("the cell failed")?;
    assert_eq!(error.code, "code_failed");
    let message = &error.message;
    assert!(message.contains("NameError: name 'sacks'"), "{message}");
    assert!(message.contains("<cell 1>"), "{message}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_interpreter_says_why_the_one_before_it_ended() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    cell(&stack, "a", "sacks = 12").await?;
    let ended = cell(&stack, "a", "import os\nos._exit(3)").await?;
    let error = ended.error.context("the cell failed")?;
    assert!(
        error.message.contains("its variables are gone"),
        "{}",
        error.message
    );
    let next = output(&cell(&stack, "a", "'sacks' in globals()").await?)?;
    assert_eq!(
        (&next["cell"], &next["value"]),
        (&json!(1), &json!("False"))
    );
    assert!(next["restarted_because"].is_string(), "{next}");
    let kept = output(&cell(&stack, "a", "1").await?)?;
    assert_eq!(kept.get("restarted_because"), None);
    Ok(())
}
