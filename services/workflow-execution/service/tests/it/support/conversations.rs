//! A double of the conversations of the agent runtime, in memory.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use contracts::tavern::agent::v1::conversation_service_server::ConversationService;
use contracts::tavern::agent::v1::*;
use contracts::tavern::common::v1::{ChatMessage, ChatRole, ErrorReason};
use grpc_kit::Failure;
use tonic::{Code, Request, Response, Status};

/// The double. Clones are handles of the same.
#[derive(Clone, Default)]
pub(crate) struct ConversationDouble {
    inner: Arc<Mutex<HashMap<String, Kept>>>,
}

/// The revision of a conversation and its messages.
type Kept = (u64, Vec<ChatMessage>);

impl ConversationDouble {
    /// Adds messages of the user and the model in turn.
    pub(crate) fn say(&self, conversation_id: &str, texts: &[&str]) {
        let mut conversations = self.inner.lock().unwrap();
        let (revision, messages) = conversations.entry(conversation_id.to_owned()).or_default();
        *revision += 1;
        for text in texts {
            let role = match messages.len() % 2 {
                0 => ChatRole::User,
                _ => ChatRole::Assistant,
            };
            messages.push(ChatMessage {
                role: role.into(),
                text: (*text).to_owned(),
                ..ChatMessage::default()
            });
        }
    }

    /// The texts of a conversation.
    pub(crate) fn texts(&self, conversation_id: &str) -> Vec<String> {
        let conversations = self.inner.lock().unwrap();
        let found = conversations.get(conversation_id);
        let messages = found
            .map(|(_, messages)| messages.clone())
            .unwrap_or_default();
        messages.into_iter().map(|message| message.text).collect()
    }

    fn conversation(&self, id: &str) -> Result<Conversation, Status> {
        let conversations = self.inner.lock().unwrap();
        let (revision, _) = conversations.get(id).ok_or_else(|| {
            Failure::new(
                Code::NotFound,
                ErrorReason::ConversationNotFound,
                "there is none",
            )
            .into_status()
        })?;
        Ok(Conversation {
            conversation_id: id.to_owned(),
            revision: *revision,
            ..Conversation::default()
        })
    }
}

#[tonic::async_trait]
impl ConversationService for ConversationDouble {
    async fn get_conversation(
        &self,
        request: Request<GetConversationRequest>,
    ) -> Result<Response<GetConversationResponse>, Status> {
        let conversation = Some(self.conversation(&request.into_inner().conversation_id)?);
        Ok(Response::new(GetConversationResponse { conversation }))
    }

    async fn list_conversations(
        &self,
        _: Request<ListConversationsRequest>,
    ) -> Result<Response<ListConversationsResponse>, Status> {
        Err(Status::unimplemented("nodes do not list conversations"))
    }

    async fn delete_conversation(
        &self,
        _: Request<DeleteConversationRequest>,
    ) -> Result<Response<DeleteConversationResponse>, Status> {
        Err(Status::unimplemented("nodes do not delete conversations"))
    }

    async fn branch_conversation(
        &self,
        _: Request<BranchConversationRequest>,
    ) -> Result<Response<BranchConversationResponse>, Status> {
        Err(Status::unimplemented("nodes do not branch conversations"))
    }

    async fn compact_conversation(
        &self,
        _: Request<CompactConversationRequest>,
    ) -> Result<Response<CompactConversationResponse>, Status> {
        Err(Status::unimplemented("nodes do not compact conversations"))
    }

    async fn list_messages(
        &self,
        request: Request<ListMessagesRequest>,
    ) -> Result<Response<ListMessagesResponse>, Status> {
        let request = request.into_inner();
        let skip: usize = request.page_token.parse().unwrap_or(0);
        let conversations = self.inner.lock().unwrap();
        let (_, messages) = &conversations[&request.conversation_id];
        // Pages of two, so that each conversation of a test has several.
        let page = messages.iter().skip(skip).take(2).map(|message| Message {
            role: message.role,
            text: message.text.clone(),
            calls: message.calls.clone(),
            result_of: message.result_of.clone(),
            ..Message::default()
        });
        let next_page_token = match skip + 2 < messages.len() {
            true => (skip + 2).to_string(),
            false => String::new(),
        };
        Ok(Response::new(ListMessagesResponse {
            messages: page.collect(),
            next_page_token,
        }))
    }

    async fn append_messages(
        &self,
        request: Request<AppendMessagesRequest>,
    ) -> Result<Response<AppendMessagesResponse>, Status> {
        let request = request.into_inner();
        let id = request.conversation_id;
        {
            let mut conversations = self.inner.lock().unwrap();
            let (revision, messages) = conversations.entry(id.clone()).or_default();
            if *revision != request.expected_revision {
                let reason = ErrorReason::RevisionMismatch;
                return Err(Failure::new(Code::Aborted, reason, "it was changed").into_status());
            }
            *revision += 1;
            messages.extend(request.messages);
        }
        let conversation = Some(self.conversation(&id)?);
        Ok(Response::new(AppendMessagesResponse {
            conversation,
            ..AppendMessagesResponse::default()
        }))
    }
}
