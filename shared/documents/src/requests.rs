//! Request ids that were used.
//!
//! A store notes a request in the transaction that carries it out, by [`note`]; the table is part of
//! [`MIGRATIONS`](crate::MIGRATIONS).

use async_trait::async_trait;
use core_types::{Tenant, Timestamp};
use run_log::Hash;
use sqlx::{Row, SqliteConnection};

use crate::store::StoreError;

/// The time for which a request id is remembered: a week.
const KEPT_NANOS: i64 = 7 * 86_400 * 1_000_000_000;

/// A request that is carried out once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The method.
    pub method: &'static str,
    /// The resource within which the ids of the method are unique; may be empty.
    pub scope: &'a str,
    /// The caller's id for it.
    pub id: &'a str,
    /// The digest of the request.
    pub body: Hash,
}

/// What is known of a request id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// It was not used.
    New,
    /// It was used with this body, and this was noted of the answer.
    Same(String),
    /// It was used with another body.
    OtherBody,
}

impl<'a> Request<'a> {
    /// Makes the request of a caller; none if its id is empty, as it is never repeated then.
    pub fn of(method: &'static str, id: &'a str, body: Hash) -> Option<Self> {
        let scope = "";
        (!id.is_empty()).then_some(Self {
            method,
            scope,
            id,
            body,
        })
    }
}

/// Knows the request ids that were used.
#[async_trait]
pub trait RequestStore: Send + Sync + std::fmt::Debug {
    /// Returns what is known of a request id.
    ///
    /// # Errors
    /// A database that does not work.
    async fn seen(&self, tenant: Tenant, request: Request<'_>) -> Result<Seen, StoreError>;
}

/// Returns what is known of a request id.
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

/// Notes a request with what is needed to answer it again. Returns whether its id was new. Ids that were used
/// more than a week ago are forgotten.
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
