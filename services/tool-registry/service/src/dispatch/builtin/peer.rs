//! The frame of a call that agent-runtime carries out: its conversation, its request id, and the
//! meaning of refusals.

use call_outcome::{Category, Failure};
use contracts::tavern::common::v1::ErrorReason;
use grpc_kit::{CallContext, FailureClass};
use serde_json::Value;
use tonic::{Response, Status};

use crate::dispatch::ResolvedCall;

/// A call of the agent whose conversation it names, which is never an argument (rule G307).
#[derive(Debug)]
pub(super) struct PeerCall<'a> {
    resolved: &'a ResolvedCall,
    pub(super) arguments: &'a Value,
    conversation_id: String,
}

impl<'a> PeerCall<'a> {
    /// Takes a call.
    ///
    /// # Errors
    /// The call names no conversation.
    pub(super) fn of(resolved: &'a ResolvedCall) -> Result<Self, Failure> {
        let conversation = resolved.conversation.as_ref().map(ToString::to_string);
        let conversation_id = conversation.ok_or_else(|| {
            let message = "the tool works in a conversation of an agent, and the call names none";
            Failure::new(Category::Validation, "conversation_required", message)
        })?;
        Ok(Self {
            resolved,
            arguments: &resolved.arguments,
            conversation_id,
        })
    }

    /// Returns the conversation.
    pub(super) fn conversation_id(&self) -> String {
        self.conversation_id.clone()
    }

    /// Returns the name under which a repeated call gets the first answer.
    pub(super) fn request_id(&self) -> String {
        self.resolved.request_id()
    }

    /// Returns a text argument; empty without one.
    pub(super) fn text(&self, name: &str) -> String {
        let text = self.arguments[name].as_str();
        text.unwrap_or_default().to_owned()
    }

    /// Returns the texts of an argument that is a list; empty without one.
    pub(super) fn texts(&self, name: &str) -> Vec<String> {
        let texts = self.arguments[name].as_array().into_iter().flatten();
        let texts = texts.filter_map(Value::as_str);
        texts.map(str::to_owned).collect()
    }

    /// Returns a whole number; 0 without one.
    pub(super) fn number(&self, name: &str) -> u32 {
        let number = self.arguments[name].as_u64();
        let number = number.and_then(|number| u32::try_from(number).ok());
        number.unwrap_or_default()
    }

    /// Returns the context of the call, for its requests to agent-runtime.
    pub(super) fn context(&self) -> &CallContext {
        &self.resolved.context
    }

    /// Waits for an answer of agent-runtime.
    ///
    /// # Errors
    /// Agent-runtime refuses, or cannot be reached.
    pub(super) async fn ask<T>(
        &self,
        answer: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, Failure> {
        let answer = answer.await.map(Response::into_inner);
        answer.map_err(|status| failure_of(&status))
    }
}

/// Returns the failure that a refusal of agent-runtime is to the caller.
pub(super) fn failure_of(status: &Status) -> Failure {
    let (category, code) = match grpc_kit::reason(status) {
        Some(ErrorReason::StatePathNotFound) => (Category::Domain, "path_not_found"),
        Some(ErrorReason::ConversationNotFound) => (Category::Domain, "no_private_state"),
        Some(ErrorReason::StateVersionMismatch) => (Category::Domain, "version_conflict"),
        Some(ErrorReason::SceneNotRunning) => (Category::Domain, "no_scene"),
        Some(ErrorReason::WorldWriteDenied) => (Category::Domain, "world_write_denied"),
        Some(ErrorReason::EventsThrottled) => (Category::Dependency, "throttled"),
        Some(ErrorReason::KnowledgeBaseNotFound) => (Category::Domain, "kb_missing"),
        Some(ErrorReason::KnowledgeDenied) => (Category::Domain, "kb_denied"),
        Some(ErrorReason::LimitExceeded) => (Category::Limit, "limit_exceeded"),
        Some(ErrorReason::StateInvalid) => (Category::Validation, "state_invalid"),
        Some(ErrorReason::InvalidFields) => (Category::Validation, "invalid_path"),
        Some(ErrorReason::OverrideFailed) => (Category::Dependency, "override_failed"),
        _ => (Category::Dependency, "agent_runtime_failed"),
    };
    let message = match grpc_kit::violations(status).as_slice() {
        [] => status.message().to_owned(),
        violations => {
            let words = violations
                .iter()
                .map(|(path, problem)| format!("{path}: {problem}"));
            words.collect::<Vec<_>>().join("; ")
        }
    };
    let is_passing =
        code == "version_conflict" || FailureClass::of(status) == FailureClass::Transient;
    let mut failure = Failure::new(category, code, message);
    failure.retryable = is_passing;
    failure
}
