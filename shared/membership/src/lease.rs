//! The rows of members: joining, renewing and fencing.

use std::{
    sync::{Weak, atomic::Ordering},
    time::{Duration, Instant},
};

use sqlx::{Connection, FromRow, PgConnection};
use tokio::time::sleep;

use crate::{JoinError, Loss, MemberSettings, Shared, clock, writer::FenceError};

/// A member with one of the services of a process that starts.
#[derive(Debug, FromRow)]
struct Other {
    id: String,
    services: String,
    address: String,
    /// The milliseconds until its lease ends.
    left_ms: i64,
}

/// Writes the row of a member, once no other process with one of its services holds a lease.
pub(crate) async fn join(
    connection: &mut PgConnection,
    id: &str,
    settings: &MemberSettings,
) -> Result<(), JoinError> {
    let mut awaited: Option<Other> = None;
    loop {
        let mut transaction = connection.begin().await?;
        // Two processes that start at once see each other.
        sqlx::query("LOCK TABLE members IN SHARE ROW EXCLUSIVE MODE")
            .execute(&mut *transaction)
            .await?;
        let other = other_with(&mut transaction, &settings.services).await?;
        let Some(other) = other else {
            sqlx::query(
                "INSERT INTO members (id, services, version, address, lease_ms) VALUES ($1, $2, $3, $4, $5)",
            )
            .bind(id)
            .bind(&settings.services)
            .bind(&settings.version)
            .bind(&settings.address)
            .bind(millis(settings.lease))
            .execute(&mut *transaction)
            .await?;
            return Ok(transaction.commit().await?);
        };
        transaction.rollback().await?;
        let renewed = |before: &Other| before.id == other.id && other.left_ms > 0;
        if awaited.as_ref().is_some_and(renewed) {
            return Err(JoinError::Held {
                member: other.id,
                address: other.address,
                services: other.services,
            });
        }
        let left = Duration::from_millis(other.left_ms.max(0).unsigned_abs());
        if left.is_zero() {
            fence_expired(connection, id).await?;
        } else {
            tracing::info!(
                member = other.id,
                address = other.address,
                ?left,
                "waiting for the end of a lease"
            );
            sleep(left + Duration::from_millis(10)).await;
        }
        awaited = Some(other);
    }
}

/// Returns a member that is not fenced and has one of some services.
async fn other_with(
    connection: &mut PgConnection,
    services: &str,
) -> Result<Option<Other>, sqlx::Error> {
    sqlx::query_as(
        "SELECT id, services, address, ceil(lease_ms - 1000 * extract(epoch FROM clock_timestamp() - renewed))::bigint \
         AS left_ms FROM members \
         WHERE NOT fenced AND string_to_array(services, ',') && string_to_array($1, ',') \
         ORDER BY renewed DESC LIMIT 1",
    )
    .bind(services)
    .fetch_optional(connection)
    .await
}

/// Marks the members whose leases have ended, and raises the epochs of their writers in the same statement. Returns the
/// number of writers.
pub(crate) async fn fence_expired(
    connection: &mut PgConnection,
    id: &str,
) -> Result<u64, sqlx::Error> {
    let fenced = sqlx::query(
        "WITH expired AS (SELECT id FROM members WHERE NOT fenced AND id <> $1 \
             AND renewed < clock_timestamp() - lease_ms * interval '1 ms' FOR UPDATE SKIP LOCKED), \
         marked AS (UPDATE members AS m SET fenced = TRUE FROM expired WHERE m.id = expired.id RETURNING m.id) \
         UPDATE writers AS w SET epoch = epoch + 1 FROM marked WHERE w.member = marked.id",
    )
    .bind(id)
    .execute(connection)
    .await?;
    Ok(fenced.rows_affected())
}

/// Deletes the row of a member and those of its writers.
pub(crate) async fn leave(connection: &mut PgConnection, id: &str) -> Result<(), sqlx::Error> {
    let deleted = sqlx::query(
        "WITH member AS (DELETE FROM members WHERE id = $1 AND NOT fenced RETURNING id) \
         DELETE FROM writers USING member WHERE writers.member = member.id",
    );
    deleted.bind(id).execute(connection).await.map(drop)
}

/// Renews the lease of a member until it is dropped or lost, and fences others whose leases have ended.
pub(crate) async fn renew(member: Weak<Shared>, connection: PgConnection) {
    let mut connection = Some(connection);
    // Only a member whose own renewals have succeeded for a whole lease fences others: after the database was away, the
    // leases of all have ended.
    let mut unbroken = Instant::now();
    loop {
        let Some(member) = member.upgrade() else {
            return;
        };
        let lease = member.lease;
        match renew_once(&member, &mut connection).await {
            Ok(()) => {
                if unbroken.elapsed() > lease
                    && let Some(connection) = &mut connection
                    && let Err(error) = fence_expired(connection, &member.id).await
                {
                    tracing::warn!(%error, "members whose leases have ended were not fenced");
                }
            }
            Err(FenceError::Lost(loss)) => return member.lose(loss),
            Err(FenceError::Failed(error)) => {
                unbroken = Instant::now();
                connection = None;
                tracing::warn!(%error, "the lease was not renewed");
                drop(member);
                sleep(lease / 40).await;
                continue;
            }
        }
        drop(member);
        sleep(lease * 3 / 10).await;
    }
}

async fn renew_once(
    member: &Shared,
    connection: &mut Option<PgConnection>,
) -> Result<(), FenceError> {
    let connection = match connection {
        Some(connection) => connection,
        none => none.insert(member.connect().await?),
    };
    let sent = clock::now();
    let renewed =
        sqlx::query("UPDATE members SET renewed = clock_timestamp() WHERE id = $1 AND NOT fenced");
    let renewed = renewed.bind(&member.id).execute(connection).await?;
    if renewed.rows_affected() == 0 {
        return Err(FenceError::Lost(Loss::Fenced));
    }
    member.confirmed.store(sent, Ordering::Release);
    Ok(())
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
