//! The fence of a writing connection: a row whose epoch each statement compares.

use sqlx::PgConnection;

use crate::{Loss, Membership};

/// The row of a writing connection. A statement of it begins with [`LOCK`], and stores nothing if that finds no row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Writer {
    /// The row.
    pub id: i64,
    /// The epoch at which the connection writes.
    pub epoch: i64,
}

/// The query that locks a writer's row, `$1`, if its epoch is still `$2`. A raise of the epoch waits for the
/// statement, and a statement behind the raise stores nothing.
pub const LOCK: &str = "SELECT id FROM writers WHERE id = $1 AND epoch = $2 FOR NO KEY UPDATE";

/// The reason for which a connection may not write.
#[derive(Debug, thiserror::Error)]
pub enum FenceError {
    /// The process is no longer a member.
    #[error(transparent)]
    Lost(#[from] Loss),
    /// The database failed.
    #[error("the database failed")]
    Failed(#[from] sqlx::Error),
}

impl Membership {
    /// Makes a writer of this member.
    ///
    /// # Errors
    /// The loss of the membership, or the database's error.
    pub async fn add_writer(&self, connection: &mut PgConnection) -> Result<Writer, FenceError> {
        // The renewal makes a member that fences this one at the same moment look at the row again.
        let made = sqlx::query_scalar(
            "WITH member AS (UPDATE members SET renewed = clock_timestamp() WHERE id = $1 AND NOT fenced RETURNING id) \
             INSERT INTO writers (member) SELECT id FROM member RETURNING id",
        );
        let made: Option<i64> = made.bind(self.id()).fetch_optional(connection).await?;
        match made {
            Some(id) => Ok(Writer { id, epoch: 1 }),
            None => Err(self.fenced()),
        }
    }

    /// Raises the epoch of a writer of this member. That waits for a statement of its earlier connection that is still
    /// carried out; after it each one is stored or never will be.
    ///
    /// # Errors
    /// The loss of the membership, or the database's error.
    pub async fn raise(
        &self,
        connection: &mut PgConnection,
        writer: &mut Writer,
    ) -> Result<(), FenceError> {
        // Each attempt has an epoch of its own: one that arrives late, of a connection that was given up, changes nothing.
        writer.epoch += 1;
        let raised = sqlx::query(
            "WITH member AS (SELECT id FROM members WHERE id = $1 AND NOT fenced FOR NO KEY UPDATE) \
             UPDATE writers AS w SET epoch = $3 FROM member WHERE w.id = $2 AND w.epoch < $3",
        );
        let raised = raised.bind(self.id()).bind(writer.id).bind(writer.epoch);
        match raised.execute(connection).await?.rows_affected() {
            0 => Err(self.fenced()),
            _ => Ok(()),
        }
    }

    /// Notes that another process has fenced this one.
    pub fn fenced(&self) -> FenceError {
        self.shared.lose(Loss::Fenced);
        FenceError::Lost(Loss::Fenced)
    }
}
