//! Which runs must stay although they are old.

use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use core_types::{RunId, Timestamp};
use run_log::{Keeper, Order, RunFilter, RunLog, RunState, RunSummary};
use tokio::sync::OnceCell;
use tonic::Status;

use super::Neighbours;
use crate::failure::storage_failure;
use crate::meta::RunMeta;
use crate::runs::Runs;
use crate::store::PAGE;

/// What a service keeps beside its runs.
#[async_trait]
pub trait Besides: Send + Sync {
    /// Whether a finished run must stay for a reason that only its service knows.
    ///
    /// # Errors
    /// A status when that cannot be known.
    async fn must_stay(&self, run: &RunSummary) -> Result<bool, Status>;

    /// Deletes what is old beside the runs. Returns the number of bytes that went back to the file system.
    ///
    /// # Errors
    /// A status when it cannot be deleted.
    async fn sweep(&self, now: Timestamp, keeper: &RunKeeper<'_>) -> Result<u64, Status>;
}

/// A service that keeps nothing beside its runs.
#[derive(Clone, Copy, Debug)]
pub struct NothingBesides;

#[async_trait]
impl Besides for NothingBesides {
    async fn must_stay(&self, _: &RunSummary) -> Result<bool, Status> {
        Ok(false)
    }

    async fn sweep(&self, _: Timestamp, _: &RunKeeper<'_>) -> Result<u64, Status> {
        Ok(0)
    }
}

/// What is known of the runs of a service during one pass.
pub struct RunKeeper<'a> {
    runs: &'a Runs,
    neighbours: &'a Neighbours,
    besides: &'a dyn Besides,
    /// The runs of which calls are under way, once one was asked about. What ended before the pass begins
    /// none.
    busy: OnceCell<HashSet<String>>,
    /// The runs above others, and whether each is open. Locked for a look or a change, never across an await.
    above: Mutex<HashMap<RunId, bool>>,
}

impl std::fmt::Debug for RunKeeper<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("RunKeeper")
            .field("runs", self.runs)
            .finish_non_exhaustive()
    }
}

impl<'a> RunKeeper<'a> {
    pub(super) fn new(
        runs: &'a Runs,
        neighbours: &'a Neighbours,
        besides: &'a dyn Besides,
    ) -> Self {
        Self {
            runs,
            neighbours,
            besides,
            busy: OnceCell::new(),
            above: Mutex::default(),
        }
    }

    /// Whether all runs of a conversation ended before a time and none must stay, so that they can be deleted
    /// together.
    ///
    /// # Errors
    /// A status when that cannot be known.
    pub async fn can_end_conversation(
        &self,
        conversation_id: &str,
        before: Timestamp,
    ) -> Result<bool, Status> {
        let logs = &self.runs.store().logs;
        let filter = RunFilter {
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
                if !ended || self.is_named(run).await? || self.is_in_use(run).await? {
                    return Ok(false);
                }
            }
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(true),
            }
        }
    }

    async fn is_named(&self, run: &RunSummary) -> Result<bool, Status> {
        let named = self.runs.store().logs.is_named(run.id).await;
        Ok(named.map_err(|error| storage_failure(&error))?)
    }

    /// Whether a run above is open, or a call is not over.
    async fn is_in_use(&self, run: &RunSummary) -> Result<bool, Status> {
        // Of a run beside which nothing can be read, no run is known above it.
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
        let known = { self.above().get(&run).copied() };
        if let Some(is_open) = known {
            return Ok(is_open);
        }
        let store = self.runs.store();
        let is_open = match run.owner().service() == store.owner {
            true => {
                let found = store.logs.summary(run).await;
                let found = found.map_err(|error| storage_failure(&error))?;
                found.is_some_and(|run| run.state == RunState::Open)
            }
            false => {
                let found = self.neighbours.run(run).await?;
                found.is_some_and(|run| run.outcome.is_none())
            }
        };
        self.above().insert(run, is_open);
        Ok(is_open)
    }

    fn above(&self) -> std::sync::MutexGuard<'_, HashMap<RunId, bool>> {
        self.above.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Keeper for RunKeeper<'_> {
    async fn must_stay(&self, run: &RunSummary) -> Result<bool, Box<dyn Error + Send + Sync>> {
        Ok(self.besides.must_stay(run).await? || self.is_in_use(run).await?)
    }

    async fn before_deletion(&self, run: &RunSummary) -> Result<(), Box<dyn Error + Send + Sync>> {
        Ok(self
            .runs
            .delete_what_belongs_to(run.id)
            .await
            .map_err(Status::from)?)
    }
}
