//! Request ids in a database.
//!
//! A store notes a request in the transaction that carries it out, by [`note`]; the table is part of
//! [`MIGRATIONS`](super::MIGRATIONS).

use core_types::{Tenant, Timestamp};
use sql_store::{Reader, Session, Statement, StoreError};

use crate::requests::{Request, Seen};

/// The time for which a request id is remembered: a week.
const KEPT_NANOS: i64 = 7 * 86_400 * 1_000_000_000;

/// Compares a request with the record of its id.
///
/// # Errors
/// A database that does not work.
pub async fn seen(
    reader: &Reader,
    tenant: Tenant,
    request: &Request<'_>,
) -> Result<Seen, StoreError> {
    let record = Statement::new(
        "SELECT body_hash, answer FROM request \
         WHERE tenant = $1 AND method = $2 AND scope = $3 AND request_id = $4",
    )
    .bind(tenant.as_str())
    .bind(request.method)
    .bind(request.scope)
    .bind(request.id);
    let found: Option<(Vec<u8>, String)> = reader.fetch_optional(record).await?;
    Ok(match found {
        None => Seen::New,
        Some((body, answer)) if body == request.body.0 => Seen::Same(answer),
        Some(_) => Seen::OtherBody,
    })
}

/// Forgets the requests of a method about a resource that is deleted.
///
/// # Errors
/// A database that does not work.
pub async fn forget(
    session: impl Into<Session<'_>>,
    tenant: Tenant,
    method: &str,
    scope: &str,
) -> Result<(), StoreError> {
    let forget =
        Statement::new("DELETE FROM request WHERE tenant = $1 AND method = $2 AND scope = $3")
            .bind(tenant.as_str())
            .bind(method)
            .bind(scope);
    session.into().execute(forget).await?;
    Ok(())
}

/// Notes a request with the answer to a repeat of it. Returns whether its id was new. Ids that were
/// used more than a week ago are forgotten.
///
/// # Errors
/// A database that does not work.
pub async fn note(
    session: impl Into<Session<'_>>,
    tenant: Tenant,
    request: &Request<'_>,
    answer: &str,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let (mut session, now) = (session.into(), now.unix_nanos());
    let old = Statement::new("DELETE FROM request WHERE created < $1");
    session
        .execute(old.bind(now.saturating_sub(KEPT_NANOS)))
        .await?;
    let note = Statement::new(
        "INSERT INTO request (tenant, method, scope, request_id, body_hash, answer, created) \
         VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING",
    )
    .bind(tenant.as_str())
    .bind(request.method)
    .bind(request.scope)
    .bind(request.id)
    .bind(request.body.0.to_vec())
    .bind(answer)
    .bind(now);
    Ok(session.execute(note).await? > 0)
}
