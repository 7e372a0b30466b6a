//! The number of open runs of each tenant. It is asked for every second, and counted only where it may have changed.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use core_types::Tenant;
use tokio::time::Instant;

use crate::StorageError;

/// The longest use of a count: other processes may begin and end runs of a log that they share.
const LONGEST_USE: Duration = Duration::from_secs(10);

/// The number of commits of this process to a log. Clones are handles of the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Commits(Arc<AtomicU64>);

impl Commits {
    /// Counts a commit, before its steps are acknowledged.
    pub(crate) fn count(&self) {
        self.0.fetch_add(1, Ordering::Release);
    }

    fn number(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// The last count of the open runs of a log.
#[derive(Debug, Default)]
pub(crate) struct OpenRuns {
    commits: Commits,
    last: Mutex<Option<Count>>,
}

#[derive(Debug)]
struct Count {
    /// The number of commits before it was read.
    commits: u64,
    read: Instant,
    runs: BTreeMap<Tenant, u64>,
}

impl OpenRuns {
    /// Returns the counter of commits after which runs are counted anew.
    pub(crate) fn commits(&self) -> Commits {
        self.commits.clone()
    }

    /// Returns the last count, or that of `counting` after a commit.
    pub(crate) async fn by_tenant(
        &self,
        counting: impl Future<Output = Result<BTreeMap<Tenant, u64>, StorageError>>,
    ) -> Result<BTreeMap<Tenant, u64>, StorageError> {
        let commits = self.commits.number();
        if let Some(runs) = self.last(commits) {
            return Ok(runs);
        }
        let read = Instant::now();
        let runs = counting.await?;
        if let Ok(mut last) = self.last.lock() {
            *last = Some(Count {
                commits,
                read,
                runs: runs.clone(),
            });
        }
        Ok(runs)
    }

    /// Returns the last count, if it is of this number of commits.
    fn last(&self, commits: u64) -> Option<BTreeMap<Tenant, u64>> {
        let last = self.last.lock().ok()?;
        let count = last.as_ref()?;
        let is_current = count.commits == commits && count.read.elapsed() < LONGEST_USE;
        is_current.then(|| count.runs.clone())
    }
}
