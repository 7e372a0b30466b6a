//! The store in a database, a file or one of a server.

pub mod requests;
mod revisions;

use std::collections::BTreeMap;

use async_trait::async_trait;
use core_types::{Tenant, Timestamp};
use sql_store::{Database, ErrorClass, Migrations, Statement, TenantTable, classify};

use crate::{
    requests::{Request, RequestStore, Seen},
    store::{
        Collection, DocumentRow, DocumentStore, NewDocument, NewRevision, RevisionRow, StoreError,
    },
};

static MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!("migrations/sqlite");
static SERVER_MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!("migrations/postgres");

/// The tables of documents and requests in a file. They come before the tables of the service whose database
/// they are in.
pub const MIGRATIONS: Migrations = Migrations::new("documents", &MIGRATOR);

/// The tables of documents and requests of all services at a server.
pub const SERVER_MIGRATIONS: Migrations = Migrations::new("documents", &SERVER_MIGRATOR);

/// The largest number of attempts to number revisions, while other processes number some of the same document.
const NUMBERINGS: usize = 16;

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

/// The store in a database. Clone, cheap.
#[derive(Clone, Debug)]
pub struct StoredDocuments {
    database: Database,
}

impl StoredDocuments {
    /// Creates the store in an open database with [`MIGRATIONS`], or [`SERVER_MIGRATIONS`] at a server, applied.
    pub fn new(database: impl Into<Database>) -> Self {
        Self {
            database: database.into(),
        }
    }

    async fn try_add_revisions(
        &self,
        collection: Collection,
        new: &[NewRevision],
        now: Timestamp,
    ) -> Result<Vec<RevisionRow>, StoreError> {
        let mut transaction = self.database.begin().await?;
        let mut session = transaction.session();
        let mut added = Vec::with_capacity(new.len());
        for document in new {
            added.push(revisions::add(&mut session, collection, document, now).await?);
        }
        transaction.commit().await?;
        Ok(added)
    }
}

/// Returns a statement about the documents of a collection.
fn of(collection: Collection, text: &'static str) -> Statement {
    Statement::new(text)
        .bind(collection.tenant.as_str())
        .bind(collection.kind)
}

#[async_trait]
impl RequestStore for StoredDocuments {
    async fn seen(&self, tenant: Tenant, request: Request<'_>) -> Result<Seen, StoreError> {
        requests::seen(&self.database.reader(), tenant, &request).await
    }
}

#[async_trait]
impl DocumentStore for StoredDocuments {
    async fn get(
        &self,
        collection: Collection,
        id: &str,
    ) -> Result<Option<DocumentRow>, StoreError> {
        let document = of(
            collection,
            "SELECT id, version, text FROM document WHERE tenant = $1 AND kind = $2 AND id = $3",
        );
        let reader = self.database.reader();
        let row = reader.fetch_optional(document.bind(id)).await?;
        Ok(row.map(read))
    }

    async fn page(
        &self,
        collection: Collection,
        after: &str,
        limit: usize,
        most_bytes: usize,
    ) -> Result<Vec<DocumentRow>, StoreError> {
        let page = of(
            collection,
            "SELECT id, version, text FROM document WHERE tenant = $1 AND kind = $2 AND id > $3 \
             ORDER BY id LIMIT $4",
        );
        let page = page.bind(after).bind(limit);
        let mut bytes = 0;
        let fits = |(_, _, text): &(String, i64, String)| {
            let fits = bytes <= most_bytes;
            bytes += text.len();
            fits
        };
        let rows = self.database.reader().fetch_while(page, fits).await?;
        Ok(rows.into_iter().map(read).collect())
    }

    async fn put(&self, collection: Collection, new: NewDocument<'_>) -> Result<bool, StoreError> {
        let mut transaction = self.database.begin().await?;
        if let Some(request) = &new.request
            && !requests::note(
                transaction.session(),
                collection.tenant,
                request,
                "",
                new.now,
            )
            .await?
        {
            return Ok(false);
        }
        // The version is compared by the statement that stores, since other processes may store meanwhile.
        let replaces = signed(new.replaces);
        let store = match replaces {
            0 => of(
                collection,
                "INSERT INTO document (tenant, kind, id, version, text) \
                 VALUES ($1, $2, $3, 1 + $4, $5) ON CONFLICT DO NOTHING",
            ),
            _ => of(
                collection,
                "UPDATE document SET version = $4 + 1, text = $5 \
                 WHERE tenant = $1 AND kind = $2 AND id = $3 AND version = $4",
            ),
        };
        let store = store.bind(new.id).bind(replaces).bind(new.text);
        if transaction.session().execute(store).await? == 0 {
            return Ok(false);
        }
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
        let mut transaction = self.database.begin().await?;
        let delete = of(
            collection,
            "DELETE FROM document WHERE tenant = $1 AND kind = $2 AND id = $3",
        );
        if transaction.session().execute(delete.bind(id)).await? == 0 {
            return Ok(false);
        }
        if let Some(request) = &request {
            requests::note(transaction.session(), collection.tenant, request, "", now).await?;
        }
        transaction.commit().await?;
        Ok(true)
    }

    async fn newest_revisions(
        &self,
        collection: Collection,
        ids: &[&str],
    ) -> Result<BTreeMap<String, RevisionRow>, StoreError> {
        revisions::newest(&self.database.reader(), collection, ids).await
    }

    async fn revision(
        &self,
        collection: Collection,
        id: &str,
        number: u64,
    ) -> Result<Option<(RevisionRow, String)>, StoreError> {
        revisions::one(&self.database.reader(), collection, id, number).await
    }

    async fn revisions(
        &self,
        collection: Collection,
        id: &str,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<RevisionRow>, StoreError> {
        revisions::page(&self.database.reader(), collection, id, before, limit).await
    }

    async fn add_revisions(
        &self,
        collection: Collection,
        new: &[NewRevision],
        now: Timestamp,
    ) -> Result<Vec<RevisionRow>, StoreError> {
        let mut attempts = NUMBERINGS;
        loop {
            attempts -= 1;
            match self.try_add_revisions(collection, new, now).await {
                // Another process took the number.
                Err(StoreError::Failed(error))
                    if attempts > 0 && classify(&error) == ErrorClass::UniqueViolation => {}
                added => return added,
            }
        }
    }

    async fn delete_revisions(
        &self,
        collection: Collection,
        id: &str,
        up_to: u64,
        used: &[u64],
    ) -> Result<(), StoreError> {
        let mut transaction = self.database.begin().await?;
        revisions::delete(&mut transaction.session(), collection, id, up_to, used).await?;
        Ok(transaction.commit().await?)
    }

    async fn remove_tenant(&self, tenant: Tenant, limit: u32) -> Result<u64, StoreError> {
        sql_store::remove_rows(&self.database, &TABLES, tenant, limit).await
    }

    async fn close(&self) {
        self.database.close().await;
    }
}

fn read((id, version, text): (String, i64, String)) -> DocumentRow {
    DocumentRow {
        id,
        version: version.unsigned_abs(),
        text,
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
