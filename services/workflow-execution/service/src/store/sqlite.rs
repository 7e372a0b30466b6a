//! The store on SQLite.

use async_trait::async_trait;
use core_types::Timestamp;
use run_log::Hash;
use sql_store::{Migrations, SqliteDatabase};
use sqlx::{Row, Sqlite, Transaction};

use super::{
    DeleteOutcome, Put, PutOutcome, StoreError, StoredWorkflow, WorkflowStore, etag_of_hash,
};

static MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!("migrations/sqlite");

/// The tables of this service.
pub const MIGRATIONS: Migrations = Migrations::new("workflow_execution", &MIGRATOR);

/// The store on SQLite.
#[derive(Clone, Debug)]
pub struct SqliteStore {
    database: SqliteDatabase,
}

impl SqliteStore {
    /// Takes an open database with [`MIGRATIONS`] applied.
    pub fn new(database: SqliteDatabase) -> Self {
        Self { database }
    }
}

#[async_trait]
impl WorkflowStore for SqliteStore {
    async fn put(&self, put: Put<'_>) -> Result<PutOutcome, StoreError> {
        let mut transaction = self.database.begin_write().await?;
        if let Some((request_id, body_hash)) = put.request
            && let Some(before) = earlier(&mut transaction, request_id, body_hash).await?
        {
            return Ok(before);
        }
        if let Some(expected) = &put.expected {
            let current = current_etag(&mut transaction, put.id).await?;
            let current = current.unwrap_or_default();
            if current != *expected {
                return Ok(PutOutcome::EtagMismatch { current });
            }
        }
        let hash = keep(&mut transaction, put.text).await?;
        sqlx::query(
            "INSERT INTO workflows (id, hash, updated) VALUES (?1, ?2, ?3) \
             ON CONFLICT (id) DO UPDATE SET hash = excluded.hash, updated = excluded.updated",
        )
        .bind(put.id)
        .bind(&hash.0[..])
        .bind(put.now.unix_nanos())
        .execute(&mut *transaction)
        .await?;
        if let Some((request_id, body_hash)) = put.request {
            sqlx::query(
                "INSERT INTO put_requests (request_id, body_hash, workflow_id, hash, created) \
                 VALUES (?1, ?2, ?3, ?4, ?5)",
            )
            .bind(request_id)
            .bind(&body_hash.0[..])
            .bind(put.id)
            .bind(&hash.0[..])
            .bind(put.now.unix_nanos())
            .execute(&mut *transaction)
            .await?;
        }
        transaction.commit().await?;
        Ok(PutOutcome::Saved)
    }

    async fn get(&self, id: &str) -> Result<Option<StoredWorkflow>, StoreError> {
        let text = sqlx::query_scalar(
            "SELECT d.text FROM workflows w JOIN definitions d ON d.hash = w.hash WHERE w.id = ?1",
        )
        .bind(id)
        .fetch_optional(self.database.reader())
        .await?;
        Ok(text.map(|text| StoredWorkflow {
            id: id.to_owned(),
            text,
        }))
    }

    async fn ids(&self, after: &str, limit: usize) -> Result<Vec<String>, StoreError> {
        sqlx::query_scalar("SELECT id FROM workflows WHERE id > ?1 ORDER BY id LIMIT ?2")
            .bind(after)
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .fetch_all(self.database.reader())
            .await
            .map_err(StoreError::from)
    }

    async fn delete(&self, id: &str, expected: Option<&str>) -> Result<DeleteOutcome, StoreError> {
        let mut transaction = self.database.begin_write().await?;
        let Some(current) = current_etag(&mut transaction, id).await? else {
            return Ok(DeleteOutcome::NotFound);
        };
        if expected.is_some_and(|expected| expected != current) {
            return Ok(DeleteOutcome::EtagMismatch { current });
        }
        sqlx::query("DELETE FROM workflows WHERE id = ?1")
            .bind(id)
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(DeleteOutcome::Deleted)
    }

    async fn keep(&self, text: &str) -> Result<Hash, StoreError> {
        let mut transaction = self.database.begin_write().await?;
        let hash = keep(&mut transaction, text).await?;
        transaction.commit().await?;
        Ok(hash)
    }

    async fn kept(&self, hash: &Hash) -> Result<Option<String>, StoreError> {
        sqlx::query_scalar("SELECT text FROM definitions WHERE hash = ?1")
            .bind(&hash.0[..])
            .fetch_optional(self.database.reader())
            .await
            .map_err(StoreError::from)
    }

    async fn forget(&self, before: Timestamp, used: &[Hash]) -> Result<u64, StoreError> {
        let mut transaction = self.database.begin_write().await?;
        sqlx::query("DELETE FROM put_requests WHERE created < ?1")
            .bind(before.unix_nanos())
            .execute(&mut *transaction)
            .await?;
        let unused: Vec<Vec<u8>> = sqlx::query_scalar(
            "SELECT hash FROM definitions WHERE hash NOT IN (SELECT hash FROM workflows) \
             AND hash NOT IN (SELECT hash FROM put_requests)",
        )
        .fetch_all(&mut *transaction)
        .await?;
        let mut forgotten = 0;
        for hash in unused
            .iter()
            .filter(|hash| !used.iter().any(|used| used.0[..] == hash[..]))
        {
            let deleted = sqlx::query("DELETE FROM definitions WHERE hash = ?1").bind(hash);
            forgotten += deleted.execute(&mut *transaction).await?.rows_affected();
        }
        transaction.commit().await?;
        Ok(forgotten)
    }

    async fn close(&self) {
        self.database.close().await;
    }
}

async fn keep(
    transaction: &mut Transaction<'static, Sqlite>,
    text: &str,
) -> Result<Hash, StoreError> {
    let hash = Hash::of(text.as_bytes());
    sqlx::query("INSERT INTO definitions (hash, text) VALUES (?1, ?2) ON CONFLICT DO NOTHING")
        .bind(&hash.0[..])
        .bind(text)
        .execute(&mut **transaction)
        .await?;
    Ok(hash)
}

/// Looks a request up that may have been made before.
async fn earlier(
    transaction: &mut Transaction<'static, Sqlite>,
    request_id: &str,
    body_hash: Hash,
) -> Result<Option<PutOutcome>, StoreError> {
    let row = sqlx::query(
        "SELECT r.body_hash, r.workflow_id, d.text FROM put_requests r \
         JOIN definitions d ON d.hash = r.hash WHERE r.request_id = ?1",
    )
    .bind(request_id)
    .fetch_optional(&mut **transaction)
    .await?;
    let Some(row) = row else { return Ok(None) };
    let stored: Vec<u8> = row.try_get(0)?;
    if stored[..] != body_hash.0[..] {
        return Ok(Some(PutOutcome::RequestIdReused));
    }
    let (id, text) = (row.try_get(1)?, row.try_get(2)?);
    Ok(Some(PutOutcome::Replayed(StoredWorkflow { id, text })))
}

/// Returns the etag of the definition that was saved under `id`, if there is one.
async fn current_etag(
    transaction: &mut Transaction<'static, Sqlite>,
    id: &str,
) -> Result<Option<String>, StoreError> {
    let hash: Option<Vec<u8>> = sqlx::query_scalar("SELECT hash FROM workflows WHERE id = ?1")
        .bind(id)
        .fetch_optional(&mut **transaction)
        .await?;
    let damaged = |_| StoreError::Damaged {
        table: "workflows",
        column: "hash",
    };
    let hash = hash.map(|hash| hash.try_into().map_err(damaged));
    Ok(hash.transpose()?.map(|hash| etag_of_hash(&Hash(hash))))
}
