//! The store on SQLite.

pub mod requests;
mod revisions;

use std::collections::BTreeMap;

use async_trait::async_trait;
use core_types::{Tenant, Timestamp};
use futures::TryStreamExt;
use sql_store::{Migrations, SqliteDatabase, TenantTable};
use sqlx::{Row, sqlite::SqliteRow};

use crate::{
    requests::{Request, RequestStore, Seen},
    store::{
        Collection, DocumentRow, DocumentStore, NewDocument, NewRevision, RevisionRow, StoreError,
    },
};

static MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!("migrations/sqlite");

/// The tables of documents and requests. They come before the tables of the service whose database
/// they are in.
pub const MIGRATIONS: Migrations = Migrations::new("documents", &MIGRATOR);

/// The tables, for the removal of a tenant.
const TABLES: [TenantTable; 3] = [
    TenantTable {
        name: "document",
        key: "kind, id",
    },
    TenantTable {
        name: "document_revision",
        key: "kind, id, revision",
    },
    TenantTable {
        name: "request",
        key: "method, scope, request_id",
    },
];

/// The store on SQLite. Clone, cheap.
#[derive(Clone, Debug)]
pub struct SqliteDocuments {
    database: SqliteDatabase,
}

impl SqliteDocuments {
    /// Creates the store in an open database with [`MIGRATIONS`] applied.
    pub fn new(database: SqliteDatabase) -> Self {
        Self { database }
    }
}

#[async_trait]
impl RequestStore for SqliteDocuments {
    async fn seen(&self, tenant: Tenant, request: Request<'_>) -> Result<Seen, StoreError> {
        let mut connection = self.database.reader().acquire().await?;
        requests::seen(&mut connection, tenant, &request).await
    }
}

#[async_trait]
impl DocumentStore for SqliteDocuments {
    async fn get(
        &self,
        collection: Collection,
        id: &str,
    ) -> Result<Option<DocumentRow>, StoreError> {
        let row = sqlx::query(
            "SELECT id, version, text FROM document WHERE tenant = ?1 AND kind = ?2 AND id = ?3",
        )
        .bind(collection.tenant.as_str())
        .bind(collection.kind)
        .bind(id)
        .fetch_optional(self.database.reader())
        .await?;
        row.as_ref().map(read).transpose()
    }

    async fn page(
        &self,
        collection: Collection,
        after: &str,
        limit: usize,
        most_bytes: usize,
    ) -> Result<Vec<DocumentRow>, StoreError> {
        let mut rows = sqlx::query(
            "SELECT id, version, text FROM document WHERE tenant = ?1 AND kind = ?2 AND id > ?3 \
             ORDER BY id LIMIT ?4",
        )
        .bind(collection.tenant.as_str())
        .bind(collection.kind)
        .bind(after)
        .bind(i64::try_from(limit).unwrap_or(i64::MAX))
        .fetch(self.database.reader());
        let (mut page, mut bytes) = (Vec::new(), 0);
        while bytes <= most_bytes
            && let Some(row) = rows.try_next().await?
        {
            let row = read(&row)?;
            bytes += row.text.len();
            page.push(row);
        }
        Ok(page)
    }

    async fn put(&self, collection: Collection, new: NewDocument<'_>) -> Result<bool, StoreError> {
        let mut transaction = self.database.begin_write().await?;
        let stored: Option<i64> = sqlx::query_scalar(
            "SELECT version FROM document WHERE tenant = ?1 AND kind = ?2 AND id = ?3",
        )
        .bind(collection.tenant.as_str())
        .bind(collection.kind)
        .bind(new.id)
        .fetch_optional(&mut *transaction)
        .await?;
        let replaces = signed(new.replaces);
        if stored.unwrap_or(0) != replaces {
            return Ok(false);
        }
        if let Some(request) = &new.request
            && !requests::note(&mut transaction, collection.tenant, request, "", new.now).await?
        {
            return Ok(false);
        }
        sqlx::query(
            "INSERT INTO document (tenant, kind, id, version, text) \
             VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (tenant, kind, id) DO UPDATE SET \
             version = excluded.version, text = excluded.text",
        )
        .bind(collection.tenant.as_str())
        .bind(collection.kind)
        .bind(new.id)
        .bind(replaces + 1)
        .bind(new.text)
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(true)
    }

    async fn delete(
        &self,
        collection: Collection,
        id: &str,
        request: Option<Request<'_>>,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let mut transaction = self.database.begin_write().await?;
        let deleted =
            sqlx::query("DELETE FROM document WHERE tenant = ?1 AND kind = ?2 AND id = ?3")
                .bind(collection.tenant.as_str())
                .bind(collection.kind)
                .bind(id)
                .execute(&mut *transaction)
                .await?;
        if deleted.rows_affected() == 0 {
            return Ok(false);
        }
        if let Some(request) = &request {
            requests::note(&mut transaction, collection.tenant, request, "", now).await?;
        }
        transaction.commit().await?;
        Ok(true)
    }

    async fn newest_revisions(
        &self,
        collection: Collection,
        ids: &[&str],
    ) -> Result<BTreeMap<String, RevisionRow>, StoreError> {
        revisions::newest(&self.database, collection, ids).await
    }

    async fn revision(
        &self,
        collection: Collection,
        id: &str,
        number: u64,
    ) -> Result<Option<(RevisionRow, String)>, StoreError> {
        revisions::one(&self.database, collection, id, number).await
    }

    async fn revisions(
        &self,
        collection: Collection,
        id: &str,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<RevisionRow>, StoreError> {
        revisions::page(&self.database, collection, id, before, limit).await
    }

    async fn add_revisions(
        &self,
        collection: Collection,
        new: &[NewRevision],
        now: Timestamp,
    ) -> Result<Vec<RevisionRow>, StoreError> {
        let mut transaction = self.database.begin_write().await?;
        let mut added = Vec::with_capacity(new.len());
        for document in new {
            added.push(revisions::add(&mut transaction, collection, document, now).await?);
        }
        transaction.commit().await?;
        Ok(added)
    }

    async fn delete_revisions(
        &self,
        collection: Collection,
        id: &str,
        up_to: u64,
        used: &[u64],
    ) -> Result<(), StoreError> {
        revisions::delete(&self.database, collection, id, up_to, used).await
    }

    async fn remove_tenant(&self, tenant: Tenant, limit: u32) -> Result<u64, StoreError> {
        sql_store::remove_rows(&self.database, &TABLES, tenant, limit).await
    }

    async fn close(&self) {
        self.database.close().await;
    }
}

fn read(row: &SqliteRow) -> Result<DocumentRow, StoreError> {
    let version: i64 = row.try_get(1)?;
    Ok(DocumentRow {
        id: row.try_get(0)?,
        version: version.unsigned_abs(),
        text: row.try_get(2)?,
    })
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
