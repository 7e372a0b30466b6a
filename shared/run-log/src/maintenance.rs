//! Maintenance of the storage, for which no run waits. The committing task does it between two groups, a short
//! transaction at a time, so that neither waits for the lock of the other.

use core_types::{Tenant, Timestamp};
use sql_store::Statement;
use tokio::sync::{mpsc, oneshot};

use crate::StorageError;

/// The largest number of request ids that are freed in one transaction.
const REQUESTS: i64 = 256;

/// One step of maintenance, and the way of its answer.
#[derive(Debug)]
pub(crate) struct MaintenanceTask {
    pub(crate) work: Work,
    pub(crate) reply: oneshot::Sender<Result<u64, StorageError>>,
}

/// The kinds of maintenance.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    /// Frees request ids of deleted runs that had ended before a time.
    ForgetRequests {
        /// The time.
        before: Timestamp,
        /// The tenant of the runs; `None` for all.
        tenant: Option<Tenant>,
    },
    /// Returns free pages to the file system, where the database does not do that itself.
    Reclaim,
}

/// Requests a step of the committing task and waits until it is done.
pub(crate) async fn ask(
    tasks: &mpsc::Sender<MaintenanceTask>,
    work: Work,
) -> Result<u64, StorageError> {
    let (reply, answer) = oneshot::channel();
    let sent = tasks.send(MaintenanceTask { work, reply }).await;
    sent.map_err(|_| StorageError::Closed)?;
    answer.await.map_err(|_| StorageError::Closed)?
}

/// Returns the statement that frees request ids, of the runs of a log where the database holds those of several.
pub(crate) fn forget_requests(
    before: Timestamp,
    tenant: Option<Tenant>,
    log: Option<&'static str>,
) -> Statement {
    let mut forget = Statement::new(
        "DELETE FROM runs WHERE key IN (SELECT key FROM runs WHERE deleted AND NOT hidden AND finished < ",
    );
    forget.push_bind(before.unix_nanos());
    if let Some(tenant) = tenant {
        forget.push(" AND tenant = ").push_bind(tenant.as_str());
    }
    if let Some(log) = log {
        forget.push(" AND log = ").push_bind(log);
    }
    forget.push(" LIMIT ").push_bind(REQUESTS).push(")");
    forget
}
