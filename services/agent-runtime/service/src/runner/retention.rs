//! Retention of conversations: the deletion of conversations without changes for a long time.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use agent_domain::scene::conversation::scene_of;
use agent_store::{
    conversations::Conversations,
    store::{AgentStore, ConversationRow, ConversationStore},
};
use async_trait::async_trait;
use core_types::{Tenant, Timestamp};
use futures::{StreamExt, TryStreamExt, stream};
use grpc_kit::Failure;
use run_events::retention::{RunGuard, ServiceRetention};
use run_log::{
    Owners, PassReport, RunSummary,
    retention::{in_steps, rest_since},
};
use tonic::Status;

use crate::error::store_failure;

/// The number of conversations on a page.
const PAGE: usize = 64;
/// The number of conversations that are deleted at once.
const AT_ONCE: usize = 8;
/// The number of kept conversations after which a pass ends; the next one continues there.
const MOST_KEPT: usize = 8_192;

/// The conversations of agent-runtime, and the time for which they are kept.
#[derive(Debug)]
pub(crate) struct IdleConversations {
    conversations: Conversations,
    store: AgentStore,
    /// The time for which a conversation is kept after the last change in it; `None` for ever.
    age: Option<Duration>,
    /// The place at which the next pass continues. Locked for a lookup or a change, never across an
    /// await.
    before: Mutex<Option<(Timestamp, Tenant, String)>>,
}

impl IdleConversations {
    /// Keeps conversations for a time after the last change in them; zero is for ever.
    pub(crate) fn new(conversations: Conversations, store: AgentStore, age: Duration) -> Self {
        Self {
            conversations,
            store,
            age: Some(age).filter(|age| !age.is_zero()),
            before: Mutex::default(),
        }
    }

    /// Deletes the conversations of all tenants without changes since a time. Returns the number of their turns.
    async fn delete_idle(&self, since: Timestamp, guard: &RunGuard<'_>) -> Result<u64, Status> {
        let asking = self.conversations.with_open_questions().await?;
        let (mut kept, mut turns) = (0, 0);
        while kept < MOST_KEPT {
            let begun = Instant::now();
            let (time, tenant, id) =
                { self.place().take() }.unwrap_or((since, Tenant::DEFAULT, String::new()));
            let place = Some((time, tenant, id.as_str()));
            let page = self.store.conversations(&Owners::All, place, PAGE);
            let page = page.await.map_err(|error| store_failure(&error))?;
            let Some(last) = page.last() else {
                return Ok(turns);
            };
            let next = (last.created, last.owner.tenant(), last.id.clone());
            let mut deletions = Vec::new();
            for row in &page {
                if !asking.contains(&(row.owner.tenant(), row.id.clone())) {
                    deletions.push(self.delete_if_idle(row, since, guard));
                }
            }
            let deleted = stream::iter(deletions).buffer_unordered(AT_ONCE);
            let deleted: Vec<Option<u64>> = deleted.try_collect().await?;
            kept += page.len() - deleted.iter().flatten().count();
            turns += deleted.iter().flatten().sum::<u64>();
            *self.place() = Some(next);
            rest_since(begun).await;
        }
        Ok(turns)
    }

    /// Deletes a conversation without changes since a time whose scene, if any, has ended. Returns
    /// the number of its turns; none if it is kept.
    async fn delete_if_idle(
        &self,
        row: &ConversationRow,
        since: Timestamp,
        guard: &RunGuard<'_>,
    ) -> Result<Option<u64>, Status> {
        // An agent of a scene that sleeps for long remembers its conversation.
        let scene = scene_of(&row.id).and_then(|scene| scene.parse().ok());
        if let Some(scene) = scene
            && guard.is_open(scene).await?
        {
            return Ok(None);
        }
        let conversations = &self.conversations;
        conversations
            .delete_if_idle(row.owner.tenant(), &row.id, since, guard)
            .await
    }

    fn place(&self) -> std::sync::MutexGuard<'_, Option<(Timestamp, Tenant, String)>> {
        self.before.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl ServiceRetention for IdleConversations {
    async fn must_stay(&self, run: &RunSummary) -> Result<bool, Status> {
        // A turn goes with its conversation, whose history it is.
        let is_history = !run.conversation.is_empty();
        let tenant = run.owner.tenant();
        let stored = self.conversations.is_stored(tenant, &run.conversation);
        Ok(is_history && stored.await?)
    }

    async fn sweep(&self, now: Timestamp, guard: &RunGuard<'_>) -> Result<PassReport, Status> {
        let runs = match self.age {
            Some(age) => self.delete_idle(now.minus(age), guard).await?,
            None => 0,
        };
        let bytes = in_steps::<Failure, _>(|| self.conversations.reclaim()).await?;
        Ok(PassReport {
            runs,
            bytes,
            ..PassReport::default()
        })
    }
}
