//! Requests that the tests share.

use std::path::PathBuf;

use anyhow::Context;
use contracts::tavern::common::v1::{CallResult, run_event::Kind};
use contracts::tavern::gateway::v1::{
    AgentTarget, CallsTarget, InvokeTextRequest, agent_target::Input, invoke_text_request::Target,
};
use serde_json::Value;
use testkit::{Stack, invoke};

/// Requests the calls of model text.
pub(crate) fn model_text(text: &str) -> InvokeTextRequest {
    calls(CallsTarget {
        text: text.to_owned(),
        ..CallsTarget::default()
    })
}

/// Requests calls.
pub(crate) fn calls(calls: CallsTarget) -> InvokeTextRequest {
    InvokeTextRequest {
        target: Some(Target::Calls(calls)),
        ..InvokeTextRequest::default()
    }
}

/// Runs the one call of a text in a conversation, and returns its result.
pub(crate) async fn result_of(
    stack: &Stack,
    conversation: &str,
    text: String,
) -> anyhow::Result<CallResult> {
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

/// Returns the output of a call that succeeded.
pub(crate) fn output(result: &CallResult) -> anyhow::Result<Value> {
    serde_json::from_str(&result.output_json).with_context(|| format!("{result:?}"))
}

/// Sends an agent the message of a user.
pub(crate) fn user_message(agent: &str, text: &str) -> InvokeTextRequest {
    turn(AgentTarget {
        profile_id: agent.to_owned(),
        input: Some(Input::UserMessage(text.to_owned())),
        ..AgentTarget::default()
    })
}

/// Requests a turn.
pub(crate) fn turn(agent: AgentTarget) -> InvokeTextRequest {
    InvokeTextRequest {
        target: Some(Target::Agent(agent)),
        ..InvokeTextRequest::default()
    }
}

/// A block that writes a file, which needs neither script nor model.
pub(crate) fn write_file(path: &str, content: &str) -> String {
    format!(
        "I will note it.\n<ACTION><FileOperator.WriteFile><filePath>{path}</filePath>\
         <content>{content}</content></FileOperator.WriteFile></ACTION>"
    )
}

/// The directory with agents whose models do not answer.
pub(crate) fn failing_agents() -> PathBuf {
    testkit::repository().join("tests/e2e/deploy")
}
