//! Reading and extending the conversations of the agent runtime.

use std::collections::VecDeque;

use call_outcome::{Category, Failure};
use contracts::tavern::agent::v1::{
    AppendMessagesRequest, GetConversationRequest, ListMessagesRequest, Message,
};
use contracts::tavern::common::v1::{ChatMessage, ChatRole, ErrorReason};
use core_types::RequestId;
use run_client::Tries;
use run_events::RunControl;
use tonic::{Code, Status};

use workflow_domain::model::{ModelMessage, Role};
use workflow_domain::node_type::{HistoryRequest, Settled};

use super::{Clients, code_of};

/// The number of messages on a page of a conversation.
const PAGE: i32 = 500;

/// The most pages of a conversation that are read.
const MAX_PAGES: usize = 200;

/// The reason for which a conversation could not be read or extended.
enum HistoryError {
    Service(Status),
    Refused(Failure),
}

impl From<Status> for HistoryError {
    fn from(status: Status) -> Self {
        Self::Service(status)
    }
}

/// Reads or extends a conversation.
///
/// # Errors
/// The reason for which that was not possible.
pub(super) async fn execute(
    peers: Clients,
    control: RunControl,
    request: HistoryRequest,
    effect_id: String,
) -> Result<Settled, Failure> {
    tokio::select! {
        settled = ask_until_answered(peers, request, effect_id) => settled,
        () = control.cancelled() => {
            let message = "the run was ended while the conversation was read or extended";
            Err(Failure::new(Category::Cancelled, "cancelled", message))
        }
    }
}

async fn ask_until_answered(
    peers: Clients,
    request: HistoryRequest,
    effect_id: String,
) -> Result<Settled, Failure> {
    // If the effect id is too long for a request id, a repetition is found by the revision.
    let request_id = RequestId::new(effect_id).map_or_else(|_| String::new(), |id| id.to_string());
    let mut tries = Tries::default();
    loop {
        let asked = match &request {
            HistoryRequest::Load {
                conversation_id,
                limit,
            } => load(&peers, conversation_id, *limit).await,
            HistoryRequest::Save {
                conversation_id,
                messages,
                expected_revision,
            } => {
                let revision = *expected_revision;
                save(&peers, conversation_id, messages, revision, &request_id).await
            }
        };
        let status = match asked {
            Ok(settled) => return Ok(settled),
            Err(HistoryError::Refused(failure)) => return Err(failure),
            Err(HistoryError::Service(status)) => status,
        };
        if is_final(&status, &request) || !tries.wait_after(&status).await {
            return Err(refused(&status));
        }
    }
}

/// Whether waiting is useless: the conversation is in a turn, which may be waiting for this run, or
/// it no longer has the required revision.
fn is_final(status: &Status, request: &HistoryRequest) -> bool {
    match grpc_kit::reason(status) {
        Some(ErrorReason::ConversationBusy) => true,
        Some(ErrorReason::RevisionMismatch) => matches!(
            request,
            HistoryRequest::Save {
                expected_revision: Some(_),
                ..
            }
        ),
        _ => false,
    }
}

async fn load(
    peers: &Clients,
    conversation_id: &str,
    limit: usize,
) -> Result<Settled, HistoryError> {
    // The revision comes first: messages added meanwhile make a save under it fail, and are not
    // lost.
    let revision = revision(peers, conversation_id).await?;
    let mut messages = match revision {
        0 => Vec::new(),
        _ => newest(peers, conversation_id, limit).await?,
    };
    // Results are not separated from their calls, which came before the newest messages.
    let whole = messages
        .iter()
        .position(|message| message.result_of.is_none());
    messages.drain(..whole.unwrap_or(messages.len()));
    Ok(Settled::History { messages, revision })
}

/// Appends the messages that the conversation lacks. A repetition after a crash appends nothing.
async fn save(
    peers: &Clients,
    conversation_id: &str,
    messages: &[ModelMessage],
    expected_revision: Option<u64>,
    request_id: &str,
) -> Result<Settled, HistoryError> {
    let present = revision(peers, conversation_id).await?;
    let stored = match present {
        0 => Vec::new(),
        _ => newest(peers, conversation_id, messages.len()).await?,
    };
    let new = &messages[known(&stored, messages)..];
    let settled = |revision| Settled::History {
        messages: new.to_vec(),
        revision,
    };
    if new.is_empty() {
        return Ok(settled(present));
    }
    let request = AppendMessagesRequest {
        conversation_id: conversation_id.to_owned(),
        expected_revision: expected_revision.unwrap_or(present),
        messages: new.iter().map(to_proto).collect(),
        request_id: request_id.to_owned(),
    };
    let appended = match peers.conversations.clone().append_messages(request).await {
        // The process before this one saved them, and others were added after them.
        Err(status) if grpc_kit::reason(&status) == Some(ErrorReason::RequestIdReused) => {
            return Ok(settled(present));
        }
        appended => appended?,
    };
    let conversation = appended.into_inner().conversation.unwrap_or_default();
    Ok(settled(conversation.revision))
}

/// Returns the number of messages, from the first, at the end of the conversation.
fn known(stored: &[ModelMessage], messages: &[ModelMessage]) -> usize {
    let most = stored.len().min(messages.len());
    let ends_with = |count: &usize| stored[stored.len() - count..] == messages[..*count];
    (0..=most).rev().find(ends_with).unwrap_or(0)
}

/// Returns the revision of a conversation; zero if there is none yet.
async fn revision(peers: &Clients, conversation_id: &str) -> Result<u64, Status> {
    let request = GetConversationRequest {
        conversation_id: conversation_id.to_owned(),
    };
    match peers.conversations.clone().get_conversation(request).await {
        Ok(found) => Ok(found.into_inner().conversation.unwrap_or_default().revision),
        Err(status) if is_absent(&status) => Ok(0),
        Err(status) => Err(status),
    }
}

fn is_absent(status: &Status) -> bool {
    grpc_kit::reason(status) == Some(ErrorReason::ConversationNotFound)
}

/// Returns the newest messages of a conversation in their order.
async fn newest(
    peers: &Clients,
    conversation_id: &str,
    limit: usize,
) -> Result<Vec<ModelMessage>, HistoryError> {
    let mut newest = VecDeque::new();
    let mut page_token = String::new();
    for _ in 0..MAX_PAGES {
        let request = ListMessagesRequest {
            conversation_id: conversation_id.to_owned(),
            page_size: PAGE,
            page_token,
        };
        let page = peers.conversations.clone().list_messages(request).await?;
        let page = page.into_inner();
        newest.extend(page.messages.into_iter().map(from_proto));
        newest.drain(..newest.len().saturating_sub(limit));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return Ok(newest.into());
        }
    }
    let most = MAX_PAGES * usize::try_from(PAGE).unwrap_or_default();
    let message = format!("the conversation has more than {most} messages, the most that are read");
    Err(HistoryError::Refused(Failure::limit(
        "conversation_too_long",
        message,
    )))
}

fn from_proto(message: Message) -> ModelMessage {
    let role = match message.role() {
        ChatRole::System => Role::System,
        ChatRole::Assistant => Role::Assistant,
        ChatRole::Tool => Role::Tool,
        ChatRole::User | ChatRole::Unspecified => Role::User,
    };
    ModelMessage {
        calls: call_wire::native_calls_from_proto(message.calls),
        result_of: message.result_of.map(call_wire::ended_call_from_proto),
        reasoning: call_wire::reasoning_from_proto(&message.reasoning_json),
        ..ModelMessage::new(role, message.text)
    }
}

/// Converts a message for the agent runtime.
pub(super) fn to_proto(message: &ModelMessage) -> ChatMessage {
    let role = match message.role {
        Role::System => ChatRole::System,
        Role::User => ChatRole::User,
        Role::Assistant => ChatRole::Assistant,
        Role::Tool => ChatRole::Tool,
    };
    ChatMessage {
        role: role.into(),
        text: message.text.clone(),
        calls: call_wire::native_calls_to_proto(&message.calls),
        result_of: message
            .result_of
            .as_ref()
            .map(call_wire::ended_call_to_proto),
        reasoning_json: call_wire::reasoning_to_proto(message.reasoning.as_ref()),
    }
}

fn refused(status: &Status) -> Failure {
    let category = match status.code() {
        Code::InvalidArgument | Code::FailedPrecondition | Code::Aborted => Category::Validation,
        _ => Category::Dependency,
    };
    let code = code_of(status, "conversation_failed");
    Failure::new(category, code, status.message().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(texts: &[&str]) -> Vec<ModelMessage> {
        let message = |text: &&str| ModelMessage::new(Role::User, *text);
        texts.iter().map(message).collect()
    }

    #[test]
    fn what_a_conversation_ends_with_is_known() {
        for (stored, messages, expected) in [
            (&["a", "b"][..], &["a", "b", "c"][..], 2),
            (&["x", "a", "b"], &["a", "b", "c"], 2),
            (&["a", "a"], &["a", "b"], 1),
            (&["a", "b"], &["a", "b"], 2),
            (&[], &["a"], 0),
            (&["a", "b"], &["a", "c"], 0),
        ] {
            assert_eq!(known(&said(stored), &said(messages)), expected);
        }
    }
}
