//! Conversations that a call can see, and ids that a client can begin.

use agent_domain::scene::conversation::is_kept_for_scenes;
use grpc_kit::{CallContext, Failure};

use super::{Conversations, not_found};
use crate::store::ConversationRow;

impl Conversations {
    /// Returns the stored row of a conversation; none for a missing one, and for one that the call cannot see.
    ///
    /// # Errors
    /// A storage that does not work.
    pub async fn seen(
        &self,
        context: &CallContext,
        conversation_id: &str,
    ) -> Result<Option<ConversationRow>, Failure> {
        let row = self.find(context.tenant(), conversation_id).await?;
        Ok(row.filter(|row| context.sees(&row.owner)))
    }

    /// Returns the stored row of a conversation that a client continues or begins; none if its id is new in the tenant
    /// of the call.
    ///
    /// # Errors
    /// CONVERSATION_NOT_FOUND for a conversation that the call cannot see, INVALID_FIELDS for an id that a client cannot
    /// begin, or a storage that does not work.
    pub async fn seen_or_begun(
        &self,
        context: &CallContext,
        conversation_id: &str,
    ) -> Result<Option<ConversationRow>, Failure> {
        if !is_kept_for_scenes(conversation_id) {
            return self.seen_or_new(context, conversation_id).await;
        }
        match self.seen(context, conversation_id).await? {
            None => Err(kept_for_scenes()),
            row => Ok(row),
        }
    }

    /// Returns the stored row of a conversation; none if its id is new in the tenant of a call.
    ///
    /// # Errors
    /// CONVERSATION_NOT_FOUND for a conversation that the call cannot see, or a storage that does not work.
    pub async fn seen_or_new(
        &self,
        context: &CallContext,
        conversation_id: &str,
    ) -> Result<Option<ConversationRow>, Failure> {
        match self.find(context.tenant(), conversation_id).await? {
            Some(row) if !context.sees(&row.owner) => Err(not_found(conversation_id)),
            row => Ok(row),
        }
    }
}

/// Refuses an id that a client cannot begin.
fn kept_for_scenes() -> Failure {
    let problem = "names a conversation of a scene that does not exist; choose an id that does not begin with \
                   `fork_` or the run of a scene";
    Failure::invalid_fields().violation("conversation_id", problem)
}
