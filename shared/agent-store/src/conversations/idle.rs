//! Conversations in which nothing has happened for long.

use std::collections::HashSet;

use core_types::{RunId, Timestamp};
use grpc_kit::Failure;
use run_events::{retention::RunKeeper, store_failure};
use tonic::Status;

use super::Conversations;

impl Conversations {
    /// Whether a conversation is stored: its turns are kept as long as it is.
    ///
    /// # Errors
    /// A storage that does not work.
    pub async fn is_stored(&self, conversation_id: &str) -> Result<bool, Failure> {
        Ok(self.find(conversation_id).await?.is_some())
    }

    /// Returns the conversations in which a question waits for its answer.
    ///
    /// # Errors
    /// A storage that does not work.
    pub async fn with_open_questions(&self) -> Result<HashSet<String>, Failure> {
        let questions = self.inner.store.open_questions().await;
        let questions = questions.map_err(|error| store_failure(&error))?;
        let conversations = questions.into_iter();
        Ok(conversations
            .map(|question| question.conversation_id)
            .collect())
    }

    /// Deletes a conversation with its turns, messages and states, if nothing has happened in it since
    /// `before` and none of its turns must stay. Returns whether it is gone.
    ///
    /// # Errors
    /// A status when it is not known whether a turn must stay, or a storage that does not work.
    pub async fn delete_if_idle(
        &self,
        conversation_id: &str,
        before: Timestamp,
        keeper: &RunKeeper<'_>,
    ) -> Result<bool, Status> {
        let _one_at_a_time = self.lock(conversation_id).await;
        let Some(row) = self.find(conversation_id).await? else {
            return Ok(true);
        };
        let changed = self.inner.store.last_change(conversation_id).await;
        let changed = changed.map_err(|error| store_failure(&error))?;
        if changed.max(Some(row.created)) >= Some(before)
            || !keeper.can_end_conversation(conversation_id, before).await?
        {
            return Ok(false);
        }
        for (run, _) in self.inner.runs.by_conversation(conversation_id).await? {
            if let Ok(run) = run.run_id.parse::<RunId>() {
                self.inner.runs.forget(run).await?;
            }
        }
        self.delete_without_runs(conversation_id).await?;
        Ok(true)
    }

    /// Returns free space of the store in one step. Returns the number of bytes; zero when little is left.
    ///
    /// # Errors
    /// A storage that does not work.
    pub async fn reclaim(&self) -> Result<u64, Failure> {
        let returned = self.inner.store.reclaim().await;
        returned.map_err(|error| store_failure(&error))
    }
}
