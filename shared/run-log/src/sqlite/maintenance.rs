//! Maintenance of the file, for which no run waits. The committing task does it between two groups, a short
//! transaction at a time, so that neither waits for the lock of the other.

use core_types::{Tenant, Timestamp};
use sqlx::SqliteConnection;
use tokio::sync::{mpsc, oneshot};

use crate::StorageError;

/// The largest number of request ids that are freed in one transaction.
const REQUESTS: i64 = 256;

/// One step of maintenance, and the way of its answer.
#[derive(Debug)]
pub(super) struct MaintenanceTask {
    pub(super) work: Work,
    pub(super) reply: oneshot::Sender<Result<u64, StorageError>>,
}

/// The kinds of maintenance.
#[derive(Clone, Copy, Debug)]
pub(super) enum Work {
    /// Frees request ids of deleted runs that had ended before a time.
    ForgetRequests {
        /// The time.
        before: Timestamp,
        /// The tenant of the runs; `None` for all.
        tenant: Option<Tenant>,
    },
    /// Returns free pages to the file system.
    Reclaim,
}

/// Requests a step of the committing task and waits until it is done.
pub(super) async fn ask(
    tasks: &mpsc::Sender<MaintenanceTask>,
    work: Work,
) -> Result<u64, StorageError> {
    let (reply, answer) = oneshot::channel();
    let sent = tasks.send(MaintenanceTask { work, reply }).await;
    sent.map_err(|_| StorageError::Closed)?;
    answer.await.map_err(|_| StorageError::Closed)?
}

/// Does a step. Returns the number of request ids or bytes.
pub(super) async fn carry_out(
    connection: &mut SqliteConnection,
    work: Work,
) -> Result<u64, sqlx::Error> {
    match work {
        Work::ForgetRequests { before, tenant } => {
            let sql = "DELETE FROM runs WHERE key IN (SELECT key FROM runs \
                       WHERE deleted AND NOT hidden AND finished < ? AND (? IS NULL OR tenant = ?) LIMIT ?)";
            let tenant = tenant.map(|tenant| tenant.to_string());
            let deleted = sqlx::query(sql).bind(before.unix_nanos());
            let deleted = deleted.bind(tenant.clone()).bind(tenant).bind(REQUESTS);
            Ok(deleted.execute(connection).await?.rows_affected())
        }
        Work::Reclaim => sql_store::vacuum::reclaim(connection).await,
    }
}
