//! Conversations that begin with the messages of another (rule G601).

use contracts::tavern::common::v1::ErrorReason;
use core_types::{IdSource, RunId};
use grpc_kit::{CallContext, Failure};
use run_events::store_failure;
use sha2::{Digest, Sha256};
use tonic::Code;

use super::{Conversation, Conversations, not_found};
use crate::{
    history::{Batch, Earlier},
    store::NamedRequest,
};

/// The most messages that are copied.
const MAX_MESSAGES: usize = 10_000;
/// The most bytes of their text in all.
const MAX_BYTES: usize = 16 << 20;

/// A conversation that began with the messages of another.
#[derive(Clone, Debug)]
pub struct Branched {
    /// The conversation.
    pub conversation: Conversation,
    /// The number of messages that it began with.
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
        context: &CallContext,
        from: &str,
        count: usize,
        new_id: &str,
        request: Option<NamedRequest>,
    ) -> Result<Branched, Failure> {
        let tenant = context.tenant();
        // A repeated request has the same origin, so that it waits here.
        let _one_at_a_time = self.lock(tenant, from).await;
        let origin = self.seen_or_new(context, from).await?;
        if let Some(request) = &request
            && self.appended_by(tenant, new_id, request).await?.is_some()
        {
            let begun = self.inner.store.first_messages(tenant, new_id).await;
            let begun = begun.map_err(|error| store_failure(&error))?;
            return Ok(Branched {
                conversation: self.get(context, new_id).await?,
                messages: usize::try_from(begun).unwrap_or(usize::MAX),
                replayed: true,
            });
        }
        origin.ok_or_else(|| not_found(from))?;
        self.refuse_if_busy(tenant, from).await?;
        let parts = self.history(tenant, from, None, usize::MAX).await?;
        let all: usize = parts.iter().map(|part| part.messages.len()).sum();
        if count > all {
            let problem = format!("is {count}; the conversation has {all} messages");
            return Err(Failure::invalid_fields().violation("message_count", problem));
        }
        let count = if count > 0 { count } else { all };
        self.begin_with(context, new_id, parts, count, request)
            .await?;
        Ok(Branched {
            conversation: self.get(context, new_id).await?,
            messages: count,
            replayed: false,
        })
    }

    /// Begins the conversation `new_id` with the messages of another before one of its turns,
    /// unless the request has begun it.
    ///
    /// # Errors
    /// LIMIT_EXCEEDED, REQUEST_ID_REUSED, or a storage that does not work.
    pub async fn branch_before(
        &self,
        context: &CallContext,
        from: &str,
        turn: RunId,
        new_id: &str,
        request: Option<NamedRequest>,
    ) -> Result<(), Failure> {
        let tenant = context.tenant();
        let _one_at_a_time = self.lock(tenant, from).await;
        if let Some(request) = &request
            && self.appended_by(tenant, new_id, request).await?.is_some()
        {
            return Ok(());
        }
        let parts = self.history(tenant, from, Some(turn), usize::MAX).await?;
        self.begin_with(context, new_id, parts, usize::MAX, request)
            .await
    }

    /// Begins a conversation with the first `count` messages of parts of another, at their original
    /// times.
    async fn begin_with(
        &self,
        context: &CallContext,
        new_id: &str,
        parts: Vec<Earlier>,
        count: usize,
        request: Option<NamedRequest>,
    ) -> Result<(), Failure> {
        let mut left = count;
        let parts = parts.into_iter().filter_map(|mut part| {
            part.messages.truncate(left);
            left -= part.messages.len();
            let created = part.messages.first()?.time;
            let messages = part.messages.into_iter().map(|said| said.message);
            Some(Batch {
                created,
                messages: messages.collect(),
            })
        });
        let parts: Vec<Batch> = parts.collect();
        let messages = parts.iter().flat_map(|part| &part.messages);
        let (count, bytes) = messages.fold((0, 0), |(count, bytes), message| {
            (count + 1, bytes + message.bytes())
        });
        if count > MAX_MESSAGES || bytes > MAX_BYTES {
            let message = format!(
                "{count} messages with {bytes} bytes of text would be copied, but at most {MAX_MESSAGES} \
                 messages with {MAX_BYTES} bytes are allowed"
            );
            let reason = ErrorReason::LimitExceeded;
            return Err(Failure::new(Code::ResourceExhausted, reason, message));
        }
        let request = request.as_ref().map(|request| (request, 1));
        let (store, now) = (&self.inner.store, self.inner.clock.now());
        let stored = store.append(context.principal(), new_id, now, &parts, request);
        stored.await.map_err(|error| store_failure(&error))
    }
}

/// Returns the name of a branch of a conversation or of a turn, without its prefix: always the same
/// for a named request.
pub fn branch_key(ids: &dyn IdSource, from: &str, request_id: &str) -> String {
    if request_id.is_empty() {
        return ids.next_uuid().simple().to_string();
    }
    let mut hasher = Sha256::new();
    for part in [from, request_id] {
        // Lengths keep one part from running into the next.
        hasher.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        hasher.update(part);
    }
    let mut digest = hex::encode(hasher.finalize());
    digest.truncate(32);
    digest
}
