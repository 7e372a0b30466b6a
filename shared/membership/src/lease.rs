//! The rows of members: joining, renewing and fencing.

use std::{
    sync::{Weak, atomic::Ordering},
    time::Duration,
};

use sql_store::{ErrorClass, classify};
use sqlx::{Connection, FromRow, PgConnection, postgres::PgPool};
use tokio::time::{sleep, timeout};

use crate::{
    JoinError, Loss, MemberSettings, Shared,
    clock::{self, ClockOffset},
    usable,
    writer::FenceError,
};

/// The largest number of times that a start waits for the lock of the members, 5 s each.
const LOCK_WAITS: u32 = 6;

/// A member with one of the services of a process that starts.
#[derive(Debug, PartialEq, FromRow)]
struct Other {
    id: String,
    services: String,
    address: String,
    lease_ms: i64,
    /// The time of its last renewal, as the database writes it.
    renewed: String,
    /// The milliseconds until its lease ends; negative after its end.
    left_ms: i64,
}

impl Other {
    /// Returns the time after which a living member would have renewed its lease: the rest of its lease, and at least one
    /// period of renewals, since after an outage of the database the leases of all have ended.
    fn patience(&self) -> Duration {
        let period = self.lease_ms * 4 / 10;
        Duration::from_millis(self.left_ms.max(period).unsigned_abs() + 10)
    }
}

/// Writes the row of a member, once no other process with one of its services holds a lease.
pub(crate) async fn join(
    connection: &mut PgConnection,
    id: &str,
    settings: &MemberSettings,
) -> Result<(), JoinError> {
    let asked = settings.clock.now();
    let database =
        sqlx::query_scalar("SELECT (1000 * extract(epoch FROM clock_timestamp()))::bigint");
    let database = database.fetch_one(&mut *connection).await?;
    let offset = ClockOffset::of(asked, database, settings.clock.now());
    if offset.is_refused() {
        return Err(JoinError::Clock { ahead_ms: offset.0 });
    }
    let mut awaited: Option<Other> = None;
    let mut waits = 0..LOCK_WAITS;
    loop {
        let other = match try_join(connection, id, settings).await {
            Ok(None) => return Ok(()),
            Ok(Some(other)) => other,
            // Another process joins, or a member is slow to renew.
            Err(error) if classify(&error) == ErrorClass::Busy && waits.next().is_some() => {
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        match awaited {
            Some(before) if before.id == other.id && before.renewed == other.renewed => {
                fence(connection, &other).await?;
                awaited = None;
            }
            Some(before) if before.id == other.id => {
                return Err(JoinError::Held {
                    member: other.id,
                    address: other.address,
                    services: other.services,
                });
            }
            _ => {
                let wait = other.patience();
                tracing::info!(
                    member = other.id,
                    address = other.address,
                    ?wait,
                    "waiting for the end of a lease"
                );
                sleep(wait).await;
                awaited = Some(other);
            }
        }
    }
}

/// Writes the row of a member, unless another one has one of its services; returns that one.
async fn try_join(
    connection: &mut PgConnection,
    id: &str,
    settings: &MemberSettings,
) -> Result<Option<Other>, sqlx::Error> {
    let mut transaction = connection.begin().await?;
    // Two processes that start at once see each other.
    sqlx::query("LOCK TABLE members IN SHARE ROW EXCLUSIVE MODE")
        .execute(&mut *transaction)
        .await?;
    let other = other_with(&mut transaction, &settings.services).await?;
    if other.is_some() {
        transaction.rollback().await?;
        return Ok(other);
    }
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
    transaction.commit().await?;
    Ok(None)
}

/// Fences a member that has not renewed its lease since it was read.
async fn fence(connection: &mut PgConnection, other: &Other) -> Result<(), sqlx::Error> {
    let fenced = sqlx::query(
        "WITH marked AS (UPDATE members SET fenced = TRUE \
             WHERE id = $1 AND renewed::text = $2 AND NOT fenced RETURNING id) \
         UPDATE writers AS w SET epoch = epoch + 1 FROM marked WHERE w.member = marked.id",
    );
    let fenced = fenced.bind(&other.id).bind(&other.renewed);
    fenced.execute(connection).await.map(drop)
}

/// Returns a member that is not fenced and has one of some services.
async fn other_with(
    connection: &mut PgConnection,
    services: &str,
) -> Result<Option<Other>, sqlx::Error> {
    sqlx::query_as(
        "SELECT id, services, address, lease_ms, renewed::text AS renewed, ceil(lease_ms - 1000 * extract(epoch FROM clock_timestamp() - renewed))::bigint \
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
async fn fence_expired(pool: &PgPool, id: &str) -> Result<u64, sqlx::Error> {
    let fenced = sqlx::query(
        "WITH expired AS (SELECT id FROM members WHERE NOT fenced AND id <> $1 \
             AND renewed < clock_timestamp() - lease_ms * interval '1 ms' FOR UPDATE SKIP LOCKED), \
         marked AS (UPDATE members AS m SET fenced = TRUE FROM expired WHERE m.id = expired.id RETURNING m.id) \
         UPDATE writers AS w SET epoch = epoch + 1 FROM marked WHERE w.member = marked.id",
    )
    .bind(id)
    .execute(pool)
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
    // Only a member whose own renewals have succeeded for a whole lease without a break fences others: after the database
    // was away, or slow, the leases of all have ended.
    let mut unbroken = clock::now();
    loop {
        let Some(member) = member.upgrade() else {
            return;
        };
        let lease = member.lease;
        let before = member.confirmed.load(Ordering::Acquire);
        let renewed = timeout(lease / 2, renew_once(&member, &mut connection)).await;
        let wait = match renewed {
            Ok(Ok(())) => {
                let now = clock::now();
                let usable = u64::try_from(usable(lease).as_millis()).unwrap_or(u64::MAX);
                if now.saturating_sub(before) > usable {
                    unbroken = now;
                }
                if u128::from(now.saturating_sub(unbroken)) > lease.as_millis()
                    && let Err(error) = fence_expired(member.database.reader(), &member.id).await
                {
                    tracing::warn!(%error, "members whose leases have ended were not fenced");
                }
                lease * 3 / 10
            }
            Ok(Err(FenceError::Lost(loss))) => return member.lose(loss),
            Ok(Err(FenceError::Failed(error))) => {
                unbroken = clock::now();
                connection = None;
                tracing::warn!(%error, "the lease was not renewed");
                lease / 40
            }
            Err(_) => {
                unbroken = clock::now();
                connection = None;
                tracing::warn!("the database does not answer, so the lease was not renewed");
                lease / 40
            }
        };
        drop(member);
        sleep(wait).await;
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
    let (sent, asked) = (clock::now(), member.clock.now());
    let renewed = sqlx::query_scalar(
        "UPDATE members SET renewed = clock_timestamp() WHERE id = $1 AND NOT fenced \
         RETURNING (1000 * extract(epoch FROM renewed))::bigint",
    );
    let database = renewed.bind(&member.id).fetch_optional(connection).await?;
    let Some(database) = database else {
        return Err(FenceError::Lost(Loss::Fenced));
    };
    member.confirmed.store(sent, Ordering::Release);
    member.report(ClockOffset::of(asked, database, member.clock.now()));
    Ok(())
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
