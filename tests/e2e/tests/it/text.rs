//! Requests that the tests share.

use std::path::PathBuf;

use contracts::tavern::gateway::v1::{
    AgentTarget, CallsTarget, InvokeTextRequest, agent_target::Input, invoke_text_request::Target,
};

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
