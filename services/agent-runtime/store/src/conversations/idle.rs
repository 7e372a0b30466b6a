//! Conversations without a change for long.

use std::collections::HashSet;

use core_types::{Principal, RunId, Tenant, Timestamp};
use grpc_kit::Failure;
use run_events::{retention::RunGuard, store_failure};
use tonic::Status;

use super::Conversations;

impl Conversations {
    /// Whether a conversation is stored: its turns are kept as long as it is.
    ///
    /// # Errors
    /// A storage that does not work.
    pub async fn is_stored(&self, tenant: Tenant, conversation_id: &str) -> Result<bool, Failure> {
        Ok(self.find(tenant, conversation_id).await?.is_some())
    }

    /// Reads the owner of each conversation of an earlier version from its first turn: the principal that started it, or
    /// `local`. It continues where an earlier process ended.
    ///
    /// # Errors
    /// A storage that does not work.
    pub async fn find_owners(&self) -> Result<(), Failure> {
        const PAGE: usize = 256;
        let store = &self.inner.store;
        loop {
            let ids = store.conversations_without_owner(PAGE).await;
            let ids = ids.map_err(|error| store_failure(&error))?;
            for id in &ids {
                let turns = self.turns(Tenant::DEFAULT, id).await?.into_iter();
                let mut owners = turns.map(|(_, meta)| meta.principal);
                let owner = owners.next().unwrap_or(Principal::LOCAL);
                let stored = store.set_owner(id, &owner).await;
                stored.map_err(|error| store_failure(&error))?;
            }
            if ids.len() < PAGE {
                return Ok(());
            }
        }
    }

    /// Returns the conversations of all tenants in which a question waits for its answer.
    ///
    /// # Errors
    /// A storage that does not work.
    pub async fn with_open_questions(&self) -> Result<HashSet<(Tenant, String)>, Failure> {
        let questions = self.inner.questions.open_questions().await;
        let questions = questions.map_err(|error| store_failure(&error))?;
        let conversations = questions.into_iter();
        Ok(conversations
            .map(|question| (question.tenant, question.conversation_id))
            .collect())
    }

    /// Deletes a conversation with its turns, messages and states, if it has not changed since
    /// `before` and none of its turns must stay. Returns the number of its turns; none if it stays.
    ///
    /// # Errors
    /// A status if it is unknown whether a turn must stay, or a storage that does not work.
    pub async fn delete_if_idle(
        &self,
        tenant: Tenant,
        conversation_id: &str,
        before: Timestamp,
        guard: &RunGuard<'_>,
    ) -> Result<Option<u64>, Status> {
        let _one_at_a_time = self.lock(tenant, conversation_id).await;
        let Some(row) = self.find(tenant, conversation_id).await? else {
            return Ok(Some(0));
        };
        let changed = self.inner.store.last_change(tenant, conversation_id).await;
        let changed = changed.map_err(|error| store_failure(&error))?;
        if changed.max(Some(row.created)) >= Some(before)
            || !guard
                .can_end_conversation(tenant, conversation_id, before)
                .await?
        {
            return Ok(None);
        }
        let turns = self.turns(tenant, conversation_id).await?;
        for (run, _) in &turns {
            if let Ok(run) = run.run_id.parse::<RunId>() {
                self.inner.runs.forget(run).await?;
            }
        }
        self.delete_without_runs(tenant, conversation_id).await?;
        Ok(Some(turns.len() as u64))
    }

    /// Returns free space of the store to the file system in one step. Returns the number of bytes;
    /// zero if little is free.
    ///
    /// # Errors
    /// A storage that does not work.
    pub async fn reclaim(&self) -> Result<u64, Failure> {
        let returned = self.inner.store.reclaim().await;
        returned.map_err(|error| store_failure(&error))
    }
}
