//! Request ids on SQLite.
//!
//! A store notes a request in the transaction that carries it out, by [`note`]; the table is part of
//! [`MIGRATIONS`](super::MIGRATIONS).

use core_types::{Tenant, Timestamp};
use sql_store::StoreError;
use sqlx::{Row, SqliteConnection};

use crate::requests::{Request, Seen};

/// The time for which a request id is remembered: a week.
const KEPT_NANOS: i64 = 7 * 86_400 * 1_000_000_000;

/// Returns the record of a request id.
///
/// # Errors
/// A database that does not work.
pub async fn seen(
    connection: &mut SqliteConnection,
    tenant: Tenant,
    request: &Request<'_>,
) -> Result<Seen, StoreError> {
    let row = sqlx::query(
        "SELECT body_hash, answer FROM request \
         WHERE tenant = ?1 AND method = ?2 AND scope = ?3 AND request_id = ?4",
    )
    .bind(tenant.as_str())
    .bind(request.method)
    .bind(request.scope)
    .bind(request.id)
    .fetch_optional(connection)
    .await?;
    let Some(row) = row else {
        return Ok(Seen::New);
    };
    let body: &[u8] = row.try_get(0)?;
    Ok(match body == request.body.0 {
        true => Seen::Same(row.try_get(1)?),
        false => Seen::OtherBody,
    })
}

/// Forgets the requests of a method about a resource that is deleted.
///
/// # Errors
/// A database that does not work.
pub async fn forget(
    connection: &mut SqliteConnection,
    tenant: Tenant,
    method: &str,
    scope: &str,
) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM request WHERE tenant = ?1 AND method = ?2 AND scope = ?3")
        .bind(tenant.as_str())
        .bind(method)
        .bind(scope)
        .execute(connection)
        .await?;
    Ok(())
}

/// Notes a request with the answer to a repeat of it. Returns whether its id was new. Ids that were
/// used more than a week ago are forgotten.
///
/// # Errors
/// A database that does not work.
pub async fn note(
    connection: &mut SqliteConnection,
    tenant: Tenant,
    request: &Request<'_>,
    answer: &str,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let now = now.unix_nanos();
    sqlx::query("DELETE FROM request WHERE created < ?1")
        .bind(now.saturating_sub(KEPT_NANOS))
        .execute(&mut *connection)
        .await?;
    let noted = sqlx::query(
        "INSERT INTO request (tenant, method, scope, request_id, body_hash, answer, created) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT DO NOTHING",
    )
    .bind(tenant.as_str())
    .bind(request.method)
    .bind(request.scope)
    .bind(request.id)
    .bind(&request.body.0[..])
    .bind(answer)
    .bind(now)
    .execute(connection)
    .await?;
    Ok(noted.rows_affected() > 0)
}
