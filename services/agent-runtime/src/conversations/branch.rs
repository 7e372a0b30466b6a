//! Conversations that begin with the messages of another (rule G601).

use contracts::tavern::common::v1::ErrorReason;
use grpc_kit::Failure;
use tonic::Code;

use super::{Conversation, Conversations};
use crate::{
    domain::message::{ChatMessage, Role},
    error::store_failure,
    store::{AppendRequest, Batch},
};

/// The most messages that are copied.
const MAX_MESSAGES: usize = 10_000;
/// The most text of all of them, in bytes.
const MAX_BYTES: usize = 16 << 20;

/// A conversation that began with the messages of another.
#[derive(Clone, Debug)]
pub struct Branched {
    /// The conversation.
    pub conversation: Conversation,
    /// How many messages it began with.
    pub messages: usize,
    /// Whether the request was seen before.
    pub replayed: bool,
}

impl Conversations {
    /// Begins the conversation `new_id` with the first messages of another, all if `count` is zero.
    ///
    /// # Errors
    /// CONVERSATION_NOT_FOUND, CONVERSATION_BUSY, LIMIT_EXCEEDED, INVALID_FIELDS if the conversation has
    /// fewer messages, REQUEST_ID_REUSED, or a storage that does not work.
    pub async fn branch(
        &self,
        from: &str,
        count: usize,
        new_id: &str,
        request: Option<AppendRequest>,
    ) -> Result<Branched, Failure> {
        // A repeated request has the same origin, so that it waits here.
        let _one_at_a_time = self.lock(from).await;
        if let Some(request) = &request
            && self.appended_by(new_id, request).await?.is_some()
        {
            let conversation = self.get(new_id).await?;
            let begun = self.history(new_id, None, usize::MAX).await?;
            return Ok(Branched {
                conversation,
                messages: begun.first().map_or(0, |part| part.messages.len()),
                replayed: true,
            });
        }
        self.get(from).await?;
        self.refuse_if_busy(from).await?;
        let messages = self.first_messages(from, count).await?;
        let (copied, batch) = (
            messages.len(),
            Batch {
                created: self.inner.clock.now(),
                messages,
            },
        );
        let request = request.as_ref().map(|request| (request, 1));
        let stored = self.inner.store.append(new_id, &batch, request).await;
        stored.map_err(|error| store_failure(&error))?;
        Ok(Branched {
            conversation: self.get(new_id).await?,
            messages: copied,
            replayed: false,
        })
    }

    async fn first_messages(&self, from: &str, count: usize) -> Result<Vec<ChatMessage>, Failure> {
        let parts = self.history(from, None, usize::MAX).await?;
        let said = parts.into_iter().flat_map(|part| part.messages);
        let mut messages: Vec<ChatMessage> = said.map(|said| said.message).collect();
        if count > messages.len() {
            let problem = format!(
                "is {count}; the conversation has {} messages",
                messages.len()
            );
            return Err(Failure::invalid_fields().violation("message_count", problem));
        }
        if count > 0 {
            messages.truncate(count);
        }
        let bytes: usize = messages.iter().map(ChatMessage::bytes).sum();
        if messages.len() > MAX_MESSAGES || bytes > MAX_BYTES {
            let message = format!(
                "{} messages with {bytes} bytes of text would be copied; {MAX_MESSAGES} messages with \
                 {MAX_BYTES} bytes are the most",
                messages.len()
            );
            let reason = ErrorReason::LimitExceeded;
            return Err(Failure::new(Code::ResourceExhausted, reason, message));
        }
        for message in &mut messages {
            // What tools gave is kept as the text that the model read.
            if message.role == Role::Tool {
                *message = ChatMessage::new(Role::User, std::mem::take(&mut message.text));
            }
        }
        Ok(messages)
    }
}
