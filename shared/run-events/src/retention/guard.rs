//! Decisions about old runs: the guard of the runs of a service.

use std::collections::HashSet;
use std::error::Error;

use async_trait::async_trait;
use core_types::{RunId, Tenant, Timestamp};
use run_log::{Order, Owners, PassReport, RetentionGuard, RunFilter, RunState, RunSummary};
use tokio::sync::OnceCell;
use tonic::Status;

use super::{Neighbours, RunCache};
use crate::failure::storage_failure;
use crate::meta::RunMeta;
use crate::runs::Runs;
use crate::store::PAGE;

/// Retention of the data that a service keeps alongside its runs.
#[async_trait]
pub trait ServiceRetention: Send + Sync {
    /// Whether a finished run must stay for a reason that only its service knows.
    ///
    /// # Errors
    /// A status when that cannot be known.
    async fn must_stay(&self, run: &RunSummary) -> Result<bool, Status>;

    /// Deletes old data alongside the runs. Returns the numbers of runs that were deleted with it,
    /// and of bytes that were returned to the file system.
    ///
    /// # Errors
    /// A status when it cannot be deleted.
    async fn sweep(&self, now: Timestamp, guard: &RunGuard<'_>) -> Result<PassReport, Status>;
}

/// The retention of a service that keeps nothing alongside its runs.
#[derive(Clone, Copy, Debug)]
pub struct RunsOnly;

#[async_trait]
impl ServiceRetention for RunsOnly {
    async fn must_stay(&self, _: &RunSummary) -> Result<bool, Status> {
        Ok(false)
    }

    async fn sweep(&self, _: Timestamp, _: &RunGuard<'_>) -> Result<PassReport, Status> {
        Ok(PassReport::default())
    }
}

/// The guard of the runs of a service during one pass.
pub struct RunGuard<'a> {
    runs: &'a Runs,
    neighbours: &'a Neighbours,
    service: &'a dyn ServiceRetention,
    /// The runs with calls in flight, once one was asked about. A run that ended before the pass
    /// makes no further call.
    busy: OnceCell<HashSet<String>>,
    /// Whether runs above others are open.
    above: RunCache,
}

impl std::fmt::Debug for RunGuard<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("RunGuard")
            .field("runs", self.runs)
            .finish_non_exhaustive()
    }
}

impl<'a> RunGuard<'a> {
    pub(super) fn new(
        runs: &'a Runs,
        neighbours: &'a Neighbours,
        service: &'a dyn ServiceRetention,
    ) -> Self {
        Self {
            runs,
            neighbours,
            service,
            busy: OnceCell::new(),
            above: RunCache::default(),
        }
    }

    /// Whether all runs of a conversation of a tenant ended before a time and none must stay, so that they can be deleted
    /// together.
    ///
    /// # Errors
    /// A status when that cannot be known.
    pub async fn can_end_conversation(
        &self,
        tenant: Tenant,
        conversation_id: &str,
        before: Timestamp,
    ) -> Result<bool, Status> {
        let logs = &self.runs.store().logs;
        let filter = RunFilter {
            owners: Owners::Tenant(tenant),
            conversation: Some(conversation_id.to_owned()),
            ..RunFilter::default()
        };
        let mut after = None;
        loop {
            // The newest in front, as it is the likeliest to stay.
            let page = logs.list(&filter, Order::NewestFirst, after.as_ref(), PAGE);
            let page = page.await.map_err(|error| storage_failure(&error))?;
            for run in &page.runs {
                let ended = run.state != RunState::Open && run.finished < Some(before);
                if !ended || self.has_dependents(run).await? || self.is_in_use(run).await? {
                    return Ok(false);
                }
            }
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(true),
            }
        }
    }

    async fn has_dependents(&self, run: &RunSummary) -> Result<bool, Status> {
        let named = self.runs.store().logs.has_dependents(run.id).await;
        Ok(named.map_err(|error| storage_failure(&error))?)
    }

    /// Whether a run above is open, or a call is not over.
    async fn is_in_use(&self, run: &RunSummary) -> Result<bool, Status> {
        // The runs above a run with unreadable data are unknown.
        let path = RunMeta::read(run).map_or_else(|_| Vec::new(), |meta| meta.path);
        for above in path.iter().filter_map(|step| step.parse().ok()) {
            if self.is_open(above).await? {
                return Ok(true);
            }
        }
        let busy = self.busy.get_or_try_init(|| self.neighbours.busy()).await?;
        Ok(busy.contains(&run.id.to_string()) || self.neighbours.has_doubt(run.id).await?)
    }

    /// Whether a run of any service is open.
    ///
    /// # Errors
    /// A status when its owner does not answer.
    pub async fn is_open(&self, run: RunId) -> Result<bool, Status> {
        self.above.get_or(run, self.ask_if_open(run)).await
    }

    async fn ask_if_open(&self, run: RunId) -> Result<bool, Status> {
        let store = self.runs.store();
        Ok(match run.owner().service() == store.owner {
            true => {
                let found = store.logs.summary(run).await;
                let found = found.map_err(|error| storage_failure(&error))?;
                found.is_some_and(|run| run.state == RunState::Open)
            }
            false => {
                let found = self.neighbours.run(run).await?;
                found.is_some_and(|run| run.outcome.is_none())
            }
        })
    }
}

#[async_trait]
impl RetentionGuard for RunGuard<'_> {
    async fn must_stay(&self, run: &RunSummary) -> Result<bool, Box<dyn Error + Send + Sync>> {
        Ok(self.service.must_stay(run).await? || self.is_in_use(run).await?)
    }

    async fn before_deletion(&self, run: &RunSummary) -> Result<(), Box<dyn Error + Send + Sync>> {
        Ok(self
            .runs
            .delete_what_belongs_to(run)
            .await
            .map_err(Status::from)?)
    }
}
