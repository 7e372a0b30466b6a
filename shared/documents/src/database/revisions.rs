//! Revisions of documents.

use std::collections::BTreeMap;

use core_types::Timestamp;
use sql_store::SqliteDatabase;
use sqlx::{Row, SqliteConnection, sqlite::SqliteRow};

use super::signed;
use crate::store::{Collection, NewRevision, RevisionRow, StoreError};

const COLUMNS: &str = "revision, etag, label, from_file, same_version_as, created";

pub(super) async fn newest(
    database: &SqliteDatabase,
    collection: Collection,
    ids: &[&str],
) -> Result<BTreeMap<String, RevisionRow>, StoreError> {
    let query = format!(
        "SELECT {COLUMNS}, id FROM document_revision r WHERE tenant = ?1 AND kind = ?2 \
         AND id IN (SELECT value FROM json_each(?3)) AND revision = (SELECT max(revision) FROM document_revision n \
         WHERE n.tenant = ?1 AND n.kind = ?2 AND n.id = r.id)"
    );
    let rows = sqlx::query(sqlx::AssertSqlSafe(query))
        .bind(collection.tenant.as_str())
        .bind(collection.kind)
        .bind(serde_json::Value::from(ids).to_string())
        .fetch_all(database.reader())
        .await?;
    let newest = rows.iter().map(|row| Ok((row.try_get(6)?, read(row)?)));
    newest.collect()
}

pub(super) async fn one(
    database: &SqliteDatabase,
    collection: Collection,
    id: &str,
    number: u64,
) -> Result<Option<(RevisionRow, String)>, StoreError> {
    let query = format!(
        "SELECT {COLUMNS}, text FROM document_revision \
         WHERE tenant = ?1 AND kind = ?2 AND id = ?3 AND revision = ?4"
    );
    let row = sqlx::query(sqlx::AssertSqlSafe(query))
        .bind(collection.tenant.as_str())
        .bind(collection.kind)
        .bind(id)
        .bind(signed(number))
        .fetch_optional(database.reader())
        .await?;
    row.map(|row| Ok((read(&row)?, row.try_get(6)?)))
        .transpose()
}

pub(super) async fn page(
    database: &SqliteDatabase,
    collection: Collection,
    id: &str,
    before: Option<u64>,
    limit: usize,
) -> Result<Vec<RevisionRow>, StoreError> {
    let query = format!(
        "SELECT {COLUMNS} FROM document_revision WHERE tenant = ?1 AND kind = ?2 AND id = ?3 \
         AND revision < ?4 ORDER BY revision DESC LIMIT ?5"
    );
    let rows = sqlx::query(sqlx::AssertSqlSafe(query))
        .bind(collection.tenant.as_str())
        .bind(collection.kind)
        .bind(id)
        .bind(before.map_or(i64::MAX, signed))
        .bind(i64::try_from(limit).unwrap_or(i64::MAX))
        .fetch_all(database.reader())
        .await?;
    rows.iter().map(read).collect()
}

pub(super) async fn add(
    connection: &mut SqliteConnection,
    collection: Collection,
    document: &NewRevision,
    now: Timestamp,
) -> Result<RevisionRow, StoreError> {
    let query = format!(
        "SELECT {COLUMNS} FROM document_revision WHERE tenant = ?1 AND kind = ?2 AND id = ?3 \
         ORDER BY revision DESC LIMIT 1"
    );
    let newest = sqlx::query(sqlx::AssertSqlSafe(query))
        .bind(collection.tenant.as_str())
        .bind(collection.kind)
        .bind(&document.id)
        .fetch_optional(&mut *connection)
        .await?;
    let newest = newest.as_ref().map(read).transpose()?;
    let number = match newest {
        Some(newest) if newest.etag == document.etag && newest.from_file == document.from_file => {
            return Ok(newest);
        }
        newest => newest.map_or(0, |newest| newest.number) + 1,
    };
    let same: i64 = sqlx::query_scalar(
        "SELECT coalesce(max(revision), 0) FROM document_revision WHERE tenant = ?1 AND kind = ?2 \
         AND id = ?3 AND label = ?4 AND label <> '' AND etag <> ?5",
    )
    .bind(collection.tenant.as_str())
    .bind(collection.kind)
    .bind(&document.id)
    .bind(&document.label)
    .bind(&document.etag)
    .fetch_one(&mut *connection)
    .await?;
    sqlx::query(
        "INSERT INTO document_revision (tenant, kind, id, revision, etag, label, from_file, \
         same_version_as, created, text) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    )
    .bind(collection.tenant.as_str())
    .bind(collection.kind)
    .bind(&document.id)
    .bind(signed(number))
    .bind(&document.etag)
    .bind(&document.label)
    .bind(document.from_file)
    .bind(same)
    .bind(now.unix_nanos())
    .bind(&document.text)
    .execute(connection)
    .await?;
    Ok(RevisionRow {
        number,
        etag: document.etag.clone(),
        label: document.label.clone(),
        from_file: document.from_file,
        same_version_as: same.unsigned_abs(),
        created: now,
    })
}

pub(super) async fn delete(
    database: &SqliteDatabase,
    collection: Collection,
    id: &str,
    up_to: u64,
    used: &[u64],
) -> Result<(), StoreError> {
    let mut transaction = database.begin_write().await?;
    sqlx::query(
        "DELETE FROM document_revision WHERE tenant = ?1 AND kind = ?2 AND id = ?3 \
         AND revision <= ?4 AND revision NOT IN (SELECT value FROM json_each(?5))",
    )
    .bind(collection.tenant.as_str())
    .bind(collection.kind)
    .bind(id)
    .bind(signed(up_to))
    .bind(serde_json::Value::from(used).to_string())
    .execute(&mut *transaction)
    .await?;
    Ok(transaction.commit().await?)
}

fn read(row: &SqliteRow) -> Result<RevisionRow, StoreError> {
    let (number, same): (i64, i64) = (row.try_get(0)?, row.try_get(4)?);
    Ok(RevisionRow {
        number: number.unsigned_abs(),
        etag: row.try_get(1)?,
        label: row.try_get(2)?,
        from_file: row.try_get(3)?,
        same_version_as: same.unsigned_abs(),
        created: Timestamp::from_unix_nanos(row.try_get(5)?),
    })
}
