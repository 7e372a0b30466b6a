//! The store on SQLite.

use async_trait::async_trait;
use sql_store::{ErrorClass, Migrations, SqliteDatabase, classify};
use sqlx::{Row, Sqlite, Transaction};

use super::{BackendRow, RequestRow, StoreError, ToolRow, ToolStore};

static MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!("migrations/sqlite");

/// The tables of this service.
pub const MIGRATIONS: Migrations = Migrations::new("tool_registry", &MIGRATOR);

/// The store on SQLite.
#[derive(Clone)]
pub struct SqliteStore {
    database: SqliteDatabase,
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("SqliteStore")
    }
}

impl SqliteStore {
    /// Takes an open database with [`MIGRATIONS`] applied.
    pub fn new(database: SqliteDatabase) -> Self {
        Self { database }
    }
}

#[async_trait]
impl ToolStore for SqliteStore {
    async fn tools(&self) -> Result<Vec<ToolRow>, StoreError> {
        let rows = sqlx::query("SELECT tool_id, definition_json FROM tools ORDER BY tool_id")
            .fetch_all(self.database.reader())
            .await?;
        rows.iter()
            .map(|row| {
                Ok(ToolRow {
                    tool_id: row.try_get(0)?,
                    definition_json: row.try_get(1)?,
                })
            })
            .collect()
    }

    async fn is_repeated(&self, request: &RequestRow) -> Result<bool, StoreError> {
        let stored: Option<String> = sqlx::query_scalar(
            "SELECT body_hash FROM requests WHERE method = ?1 AND request_id = ?2",
        )
        .bind(request.method)
        .bind(&request.request_id)
        .fetch_optional(self.database.reader())
        .await?;
        match stored {
            Some(body_hash) if body_hash != request.body_hash => Err(StoreError::RequestIdReused),
            stored => Ok(stored.is_some()),
        }
    }

    async fn put_tool(
        &self,
        tool: &ToolRow,
        request: Option<&RequestRow>,
    ) -> Result<(), StoreError> {
        let mut transaction = self.database.begin_write().await?;
        note(&mut transaction, request).await?;
        sqlx::query(
            "INSERT INTO tools (tool_id, definition_json) VALUES (?1, ?2) \
             ON CONFLICT (tool_id) DO UPDATE SET definition_json = excluded.definition_json",
        )
        .bind(&tool.tool_id)
        .bind(&tool.definition_json)
        .execute(&mut *transaction)
        .await
        .map_err(failed)?;
        transaction.commit().await.map_err(failed)
    }

    async fn delete_tool(
        &self,
        tool_id: &str,
        request: Option<&RequestRow>,
    ) -> Result<bool, StoreError> {
        let statement = "DELETE FROM tools WHERE tool_id = ?1";
        delete(&self.database, statement, tool_id, request).await
    }

    async fn backends(&self) -> Result<Vec<BackendRow>, StoreError> {
        let rows = sqlx::query("SELECT name, endpoint, descriptors FROM backends ORDER BY name")
            .fetch_all(self.database.reader())
            .await?;
        rows.iter()
            .map(|row| {
                let (name, endpoint) = (row.try_get(0)?, row.try_get(1)?);
                Ok(BackendRow {
                    name,
                    endpoint,
                    descriptors: row.try_get(2)?,
                })
            })
            .collect()
    }

    async fn put_backend(
        &self,
        backend: &BackendRow,
        request: Option<&RequestRow>,
    ) -> Result<(), StoreError> {
        let mut transaction = self.database.begin_write().await?;
        note(&mut transaction, request).await?;
        sqlx::query(
            "INSERT INTO backends (name, endpoint, descriptors) VALUES (?1, ?2, ?3) \
             ON CONFLICT (name) DO UPDATE SET endpoint = excluded.endpoint, \
             descriptors = excluded.descriptors",
        )
        .bind(&backend.name)
        .bind(&backend.endpoint)
        .bind(&backend.descriptors)
        .execute(&mut *transaction)
        .await
        .map_err(failed)?;
        transaction.commit().await.map_err(failed)
    }

    async fn delete_backend(
        &self,
        name: &str,
        request: Option<&RequestRow>,
    ) -> Result<bool, StoreError> {
        let statement = "DELETE FROM backends WHERE name = ?1";
        delete(&self.database, statement, name, request).await
    }

    async fn close(&self) {
        self.database.close().await;
    }
}

/// Deletes one row and notes the request in one transaction. Returns whether the row was there; the
/// request is not noted otherwise.
async fn delete(
    database: &SqliteDatabase,
    statement: &'static str,
    key: &str,
    request: Option<&RequestRow>,
) -> Result<bool, StoreError> {
    let mut transaction = database.begin_write().await?;
    let deleted = sqlx::query(statement)
        .bind(key)
        .execute(&mut *transaction)
        .await
        .map_err(failed)?;
    if deleted.rows_affected() == 0 {
        return Ok(false);
    }
    note(&mut transaction, request).await?;
    transaction.commit().await.map_err(failed)?;
    Ok(true)
}

/// Notes a request id, and refuses one that was used with another body.
async fn note(
    transaction: &mut Transaction<'static, Sqlite>,
    request: Option<&RequestRow>,
) -> Result<(), StoreError> {
    let Some(request) = request else {
        return Ok(());
    };
    sqlx::query(
        "INSERT INTO requests (method, request_id, body_hash) VALUES (?1, ?2, ?3) \
         ON CONFLICT DO NOTHING",
    )
    .bind(request.method)
    .bind(&request.request_id)
    .bind(&request.body_hash)
    .execute(&mut **transaction)
    .await
    .map_err(failed)?;
    let stored: String =
        sqlx::query_scalar("SELECT body_hash FROM requests WHERE method = ?1 AND request_id = ?2")
            .bind(request.method)
            .bind(&request.request_id)
            .fetch_one(&mut **transaction)
            .await
            .map_err(failed)?;
    if stored == request.body_hash {
        Ok(())
    } else {
        Err(StoreError::RequestIdReused)
    }
}

fn failed(error: sqlx::Error) -> StoreError {
    match classify(&error) {
        ErrorClass::DiskFull => StoreError::Full(error),
        _ => StoreError::Failed(error),
    }
}
