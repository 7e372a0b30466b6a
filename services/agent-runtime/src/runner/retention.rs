//! The end of conversations in which nothing has happened for long.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use agent_domain::scene::conversation::scene_of;
use agent_store::{conversations::Conversations, store::AgentStore};
use async_trait::async_trait;
use core_types::Timestamp;
use futures::{StreamExt, TryStreamExt, stream};
use grpc_kit::Failure;
use run_events::retention::{Besides, RunKeeper};
use run_log::{
    RunSummary,
    retention::{in_steps, rest_since},
};
use tonic::Status;

use crate::error::store_failure;

/// How many conversations are looked at together.
const PAGE: usize = 64;
/// How many of them are deleted at once.
const AT_ONCE: usize = 8;
/// After how many conversations that stay a pass ends; the next one continues there.
const MOST_KEPT: usize = 8_192;

/// What agent-runtime keeps beside its runs.
#[derive(Debug)]
pub(crate) struct OldConversations {
    conversations: Conversations,
    store: AgentStore,
    /// How long a conversation is kept after the last that happened in it; `None` for ever.
    age: Option<Duration>,
    /// Where the next pass continues. Locked for a look or a change, never across an await.
    before: Mutex<Option<(Timestamp, String)>>,
}

impl OldConversations {
    /// Takes how long conversations are kept after the last that happened in them; zero is for ever.
    pub(crate) fn new(conversations: Conversations, store: AgentStore, age: Duration) -> Self {
        Self {
            conversations,
            store,
            age: Some(age).filter(|age| !age.is_zero()),
            before: Mutex::default(),
        }
    }

    async fn delete_idle(&self, since: Timestamp, keeper: &RunKeeper<'_>) -> Result<(), Status> {
        let asking = self.conversations.with_open_questions().await?;
        let mut kept = 0;
        while kept < MOST_KEPT {
            let begun = Instant::now();
            let place = { self.place().take() }.unwrap_or((since, String::new()));
            let page = self.store.conversations(Some((place.0, &place.1)), PAGE);
            let page = page.await.map_err(|error| store_failure(&error))?;
            let Some(last) = page.last() else {
                return Ok(());
            };
            let next = (last.created, last.id.clone());
            let mut deletions = Vec::new();
            for row in page.iter().filter(|row| !asking.contains(&row.id)) {
                deletions.push(self.delete_if_idle(&row.id, since, keeper));
            }
            let deleted = stream::iter(deletions).buffer_unordered(AT_ONCE);
            let deleted: Vec<bool> = deleted.try_collect().await?;
            kept += page.len() - deleted.into_iter().filter(|gone| *gone).count();
            *self.place() = Some(next);
            rest_since(begun).await;
        }
        Ok(())
    }

    /// Deletes a conversation if nothing has happened in it since a time and its scene, if any, has ended.
    /// Returns whether it is gone.
    async fn delete_if_idle(
        &self,
        conversation_id: &str,
        since: Timestamp,
        keeper: &RunKeeper<'_>,
    ) -> Result<bool, Status> {
        // An agent of a scene that sleeps for long remembers its conversation.
        let scene = scene_of(conversation_id).and_then(|scene| scene.parse().ok());
        if let Some(scene) = scene
            && keeper.is_open(scene).await?
        {
            return Ok(false);
        }
        let conversations = &self.conversations;
        conversations
            .delete_if_idle(conversation_id, since, keeper)
            .await
    }

    fn place(&self) -> std::sync::MutexGuard<'_, Option<(Timestamp, String)>> {
        self.before.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Besides for OldConversations {
    async fn must_stay(&self, run: &RunSummary) -> Result<bool, Status> {
        // A turn goes with its conversation, whose history it is.
        let is_history = !run.conversation.is_empty();
        Ok(is_history && self.conversations.is_stored(&run.conversation).await?)
    }

    async fn sweep(&self, now: Timestamp, keeper: &RunKeeper<'_>) -> Result<u64, Status> {
        if let Some(age) = self.age {
            self.delete_idle(now.minus(age), keeper).await?;
        }
        Ok(in_steps::<Failure, _>(|| self.conversations.reclaim()).await?)
    }
}
