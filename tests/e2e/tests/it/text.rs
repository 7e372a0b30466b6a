//! Requests that the tests share.

use std::path::PathBuf;

use contracts::tavern::gateway::v1::invoke_text_request::Input;
use contracts::tavern::gateway::v1::{InvokeTextRequest, ToolScope};

/// Asks for the calls of what a model wrote.
pub(crate) fn model_text(text: &str) -> InvokeTextRequest {
    InvokeTextRequest {
        input: Some(Input::ModelText(text.to_owned())),
        ..Default::default()
    }
}

/// Asks an agent what a user would.
pub(crate) fn user_message(agent: &str, text: &str) -> InvokeTextRequest {
    InvokeTextRequest {
        input: Some(Input::UserMessage(text.to_owned())),
        scope: Some(ToolScope {
            profile_id: agent.to_owned(),
            tool_ids: Vec::new(),
        }),
        ..Default::default()
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
