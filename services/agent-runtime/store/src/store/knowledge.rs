//! Knowledge bases and their entries.

use agent_domain::knowledge::{Entry, KnowledgeBase};
use async_trait::async_trait;
use core_types::{Tenant, Timestamp};
use documents::{RequestStore, database::requests};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sql_store::SqliteDatabase;
use sqlx::{Row, Sqlite, Transaction, sqlite::SqliteRow};

use super::{AgentStore, NamedRequest, StoreError};

/// The method whose requests write entries of a knowledge base.
pub(crate) const WRITE: &str = "WriteKnowledge";

/// A knowledge base without its entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnowledgeRow {
    /// The id.
    pub id: String,
    /// The name for people.
    pub name: String,
    /// The subject.
    pub description: String,
    /// The digest of its document.
    pub etag: String,
    /// Whether the document is a file.
    pub from_file: bool,
    /// Whether it belongs to [`Tenant::SYSTEM`], and is read by another tenant.
    pub is_shared: bool,
    /// The number of its entries.
    pub entries: u32,
}

/// A stored entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryRow {
    /// The knowledge base.
    pub kb_id: String,
    /// The entry.
    pub entry: Entry,
    /// The profile of the agent that wrote it; empty for none.
    pub author: String,
    /// Grows with each change, from 1.
    pub version: u64,
    /// The time of the last write.
    pub updated: Timestamp,
}

/// An entry that a request wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrittenEntry {
    /// The entry.
    pub caiu_id: String,
    /// Its version.
    pub version: u64,
    /// Whether agents read it.
    pub is_enabled: bool,
}

const COLUMNS: &str = "e.kb_id, e.caiu_id, e.entry_type, e.display_name, e.text, e.tags, e.is_enabled, \
                       e.author, e.version, e.updated";

/// Stores knowledge bases, and finds their entries by words.
#[async_trait]
pub trait KnowledgeIndex: RequestStore {
    /// Returns the tenant and the id of every knowledge base.
    ///
    /// # Errors
    /// A database that does not work, or a damaged row.
    async fn knowledge_ids(&self) -> Result<Vec<(Tenant, String)>, StoreError>;

    /// Returns the knowledge bases of a tenant, by id.
    ///
    /// # Errors
    /// A database that does not work.
    async fn knowledge_bases(&self, tenant: Tenant) -> Result<Vec<KnowledgeRow>, StoreError>;

    /// Stores a knowledge base of a tenant in one commit: the new entries of its document replace the old ones, and
    /// entries of agents stay.
    ///
    /// # Errors
    /// A database that does not work.
    async fn put_knowledge_base(
        &self,
        tenant: Tenant,
        base: &KnowledgeBase,
        from_file: bool,
        now: Timestamp,
    ) -> Result<(), StoreError>;

    /// Deletes a knowledge base with every entry. Returns whether it existed.
    ///
    /// # Errors
    /// A database that does not work.
    async fn delete_knowledge_base(&self, tenant: Tenant, id: &str) -> Result<bool, StoreError>;

    /// Deletes an entry of a knowledge base that exists. Returns whether the entry existed.
    ///
    /// # Errors
    /// A database that does not work.
    async fn delete_entry(
        &self,
        tenant: Tenant,
        kb_id: &str,
        caiu_id: &str,
    ) -> Result<bool, StoreError>;

    /// Returns an entry.
    ///
    /// # Errors
    /// A database that does not work.
    async fn entry(
        &self,
        tenant: Tenant,
        kb_id: &str,
        caiu_id: &str,
    ) -> Result<Option<EntryRow>, StoreError>;

    /// Returns at most `limit` entries after `after`, by id.
    ///
    /// # Errors
    /// A database that does not work.
    async fn entries(
        &self,
        tenant: Tenant,
        kb_id: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<EntryRow>, StoreError>;

    /// Finds enabled entries of knowledge bases that exist by an expression of the index, the best match first, each
    /// with its rank; a lower one is better.
    ///
    /// # Errors
    /// A database that does not work.
    async fn find_entries(
        &self,
        tenant: Tenant,
        kb_ids: &[&str],
        expression: &str,
        limit: u32,
    ) -> Result<Vec<(f64, EntryRow)>, StoreError>;

    /// Writes an entry of a knowledge base that exists, and its request.
    ///
    /// # Errors
    /// A database that does not work.
    async fn put_entry(
        &self,
        (tenant, kb_id): (Tenant, &str),
        entry: &Entry,
        author: &str,
        request: Option<&NamedRequest>,
        now: Timestamp,
    ) -> Result<WrittenEntry, StoreError>;
}

#[async_trait]
impl KnowledgeIndex for AgentStore {
    async fn knowledge_ids(&self) -> Result<Vec<(Tenant, String)>, StoreError> {
        let rows = sqlx::query("SELECT tenant, kb_id FROM knowledge_bases");
        let rows = rows.fetch_all(self.database.reader()).await?;
        let read = |row: &SqliteRow| {
            let tenant = Tenant::new(row.try_get(0)?).map_err(|_| StoreError::Damaged {
                table: "knowledge_bases",
                column: "tenant",
            })?;
            Ok((tenant, row.try_get(1)?))
        };
        rows.iter().map(read).collect()
    }

    async fn knowledge_bases(&self, tenant: Tenant) -> Result<Vec<KnowledgeRow>, StoreError> {
        let rows = sqlx::query(
            "SELECT kb_id, name, description, etag, from_file, \
             (SELECT count(*) FROM knowledge_entries e WHERE e.tenant = b.tenant AND e.kb_id = b.kb_id) \
             FROM knowledge_bases b WHERE tenant = ?1 ORDER BY kb_id",
        );
        let rows = rows.bind(tenant.as_str());
        let rows = rows.fetch_all(self.database.reader()).await?;
        let read = |row: &SqliteRow| {
            Ok(KnowledgeRow {
                id: row.try_get(0)?,
                name: row.try_get(1)?,
                description: row.try_get(2)?,
                etag: row.try_get(3)?,
                from_file: row.try_get(4)?,
                is_shared: false,
                entries: row.try_get(5)?,
            })
        };
        rows.iter().map(read).collect()
    }

    async fn put_knowledge_base(
        &self,
        tenant: Tenant,
        base: &KnowledgeBase,
        from_file: bool,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let mut transaction = self.database.begin_write().await?;
        let index = format!(
            "CREATE VIRTUAL TABLE IF NOT EXISTS {} USING fts5 (words, tokenize = 'porter unicode61')",
            words_of(tenant)
        );
        sqlx::query(sqlx::AssertSqlSafe(index))
            .execute(&mut *transaction)
            .await?;
        sqlx::query(
            "INSERT INTO knowledge_bases (tenant, kb_id, name, description, etag, from_file) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (tenant, kb_id) DO UPDATE SET name = excluded.name, \
             description = excluded.description, etag = excluded.etag, from_file = excluded.from_file",
        )
        .bind(tenant.as_str())
        .bind(&base.id)
        .bind(&base.name)
        .bind(&base.description)
        .bind(&base.etag)
        .bind(from_file)
        .execute(&mut *transaction)
        .await?;
        let kb = (tenant, base.id.as_str());
        delete(&mut transaction, kb, "from_document = 1", "").await?;
        for entry in &base.entries {
            put(&mut transaction, kb, entry, "", true, now).await?;
        }
        Ok(transaction.commit().await?)
    }

    async fn delete_knowledge_base(&self, tenant: Tenant, id: &str) -> Result<bool, StoreError> {
        let mut transaction = self.database.begin_write().await?;
        delete(&mut transaction, (tenant, id), "1 = 1", "").await?;
        requests::forget(&mut *transaction, tenant, WRITE, id).await?;
        let deleted = sqlx::query("DELETE FROM knowledge_bases WHERE tenant = ?1 AND kb_id = ?2")
            .bind(tenant.as_str())
            .bind(id)
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(deleted.rows_affected() > 0)
    }

    async fn delete_entry(
        &self,
        tenant: Tenant,
        kb_id: &str,
        caiu_id: &str,
    ) -> Result<bool, StoreError> {
        let mut transaction = self.database.begin_write().await?;
        let kb = (tenant, kb_id);
        let deleted = delete(&mut transaction, kb, "caiu_id = ?3", caiu_id).await?;
        transaction.commit().await?;
        Ok(deleted > 0)
    }

    async fn entry(
        &self,
        tenant: Tenant,
        kb_id: &str,
        caiu_id: &str,
    ) -> Result<Option<EntryRow>, StoreError> {
        let query = format!(
            "SELECT {COLUMNS} FROM knowledge_entries e WHERE tenant = ?1 AND kb_id = ?2 AND caiu_id = ?3"
        );
        let row = sqlx::query(sqlx::AssertSqlSafe(query))
            .bind(tenant.as_str())
            .bind(kb_id)
            .bind(caiu_id)
            .fetch_optional(self.database.reader())
            .await?;
        row.as_ref().map(read).transpose()
    }

    async fn entries(
        &self,
        tenant: Tenant,
        kb_id: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<EntryRow>, StoreError> {
        let query = format!(
            "SELECT {COLUMNS} FROM knowledge_entries e WHERE tenant = ?1 AND kb_id = ?2 AND caiu_id > ?3 \
             ORDER BY caiu_id LIMIT ?4"
        );
        let rows = sqlx::query(sqlx::AssertSqlSafe(query))
            .bind(tenant.as_str())
            .bind(kb_id)
            .bind(after)
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .fetch_all(self.database.reader())
            .await?;
        rows.iter().map(read).collect()
    }

    async fn find_entries(
        &self,
        tenant: Tenant,
        kb_ids: &[&str],
        expression: &str,
        limit: u32,
    ) -> Result<Vec<(f64, EntryRow)>, StoreError> {
        let words = words_of(tenant);
        let query = format!(
            "SELECT {COLUMNS}, bm25({words}) FROM {words} JOIN knowledge_entries e ON e.entry = {words}.rowid \
             WHERE {words} MATCH ?1 AND e.is_enabled = 1 AND e.tenant = ?2 \
             AND e.kb_id IN (SELECT value FROM json_each(?3)) \
             ORDER BY bm25({words}), e.kb_id, e.caiu_id LIMIT ?4"
        );
        let rows = sqlx::query(sqlx::AssertSqlSafe(query))
            .bind(expression)
            .bind(tenant.as_str())
            .bind(serde_json::Value::from(kb_ids).to_string())
            .bind(limit)
            .fetch_all(self.database.reader())
            .await?;
        let found = rows.iter().map(|row| Ok((row.try_get(10)?, read(row)?)));
        found.collect()
    }

    async fn put_entry(
        &self,
        (tenant, kb_id): (Tenant, &str),
        entry: &Entry,
        author: &str,
        request: Option<&NamedRequest>,
        now: Timestamp,
    ) -> Result<WrittenEntry, StoreError> {
        let mut transaction = self.database.begin_write().await?;
        let kb = (tenant, kb_id);
        let version = put(&mut transaction, kb, entry, author, false, now).await?;
        let written = WrittenEntry {
            caiu_id: entry.caiu_id.clone(),
            version: version.unsigned_abs(),
            is_enabled: entry.is_enabled,
        };
        if let Some(request) = request {
            let (request, answer) = (request.within(WRITE, kb_id), json!(written).to_string());
            requests::note(&mut *transaction, tenant, &request, &answer, now).await?;
        }
        transaction.commit().await?;
        Ok(written)
    }
}

/// Returns the quoted name of the index of a tenant's words. No name of a tenant has a quotation mark.
fn words_of(tenant: Tenant) -> String {
    format!("\"knowledge_words_{tenant}\"")
}

/// Deletes entries that meet a condition, which may name a value by `?3`.
async fn delete(
    transaction: &mut Transaction<'static, Sqlite>,
    (tenant, kb_id): (Tenant, &str),
    condition: &str,
    value: &str,
) -> Result<u64, StoreError> {
    let condition = format!("tenant = ?1 AND kb_id = ?2 AND ?3 = ?3 AND {condition}");
    let words = format!(
        "DELETE FROM {} WHERE rowid IN (SELECT entry FROM knowledge_entries WHERE {condition})",
        words_of(tenant)
    );
    let entries = format!("DELETE FROM knowledge_entries WHERE {condition}");
    let mut deleted = 0;
    for statement in [words, entries] {
        let done = sqlx::query(sqlx::AssertSqlSafe(statement))
            .bind(tenant.as_str())
            .bind(kb_id)
            .bind(value)
            .execute(&mut **transaction)
            .await?;
        deleted = done.rows_affected();
    }
    Ok(deleted)
}

/// Deletes at most `limit` entries of a tenant that is being removed, and at last the index of their words. Returns the
/// number of entries that are left.
pub(super) async fn remove_entries(
    database: &SqliteDatabase,
    tenant: Tenant,
    limit: u32,
) -> Result<u64, StoreError> {
    let some = "SELECT entry FROM knowledge_entries WHERE tenant = ?1 ORDER BY entry LIMIT ?2";
    let words = words_of(tenant);
    let mut transaction = database.begin_write().await?;
    let count = "SELECT count(*) FROM knowledge_entries WHERE tenant = ?1";
    let before: i64 = sqlx::query_scalar(count)
        .bind(tenant.as_str())
        .fetch_one(&mut *transaction)
        .await?;
    if before > 0 {
        // The index is there, as an entry has words.
        for statement in [
            format!("DELETE FROM {words} WHERE rowid IN ({some})"),
            format!("DELETE FROM knowledge_entries WHERE tenant = ?1 AND entry IN ({some})"),
        ] {
            sqlx::query(sqlx::AssertSqlSafe(statement))
                .bind(tenant.as_str())
                .bind(limit)
                .execute(&mut *transaction)
                .await?;
        }
    }
    let left: i64 = sqlx::query_scalar(count)
        .bind(tenant.as_str())
        .fetch_one(&mut *transaction)
        .await?;
    if left == 0 {
        let drop = format!("DROP TABLE IF EXISTS {words}");
        sqlx::query(sqlx::AssertSqlSafe(drop))
            .execute(&mut *transaction)
            .await?;
    }
    transaction.commit().await?;
    Ok(left.unsigned_abs())
}

/// Writes an entry and its words. Returns its version.
async fn put(
    transaction: &mut Transaction<'static, Sqlite>,
    (tenant, kb_id): (Tenant, &str),
    entry: &Entry,
    author: &str,
    from_document: bool,
    now: Timestamp,
) -> Result<i64, StoreError> {
    let row = sqlx::query(
        "INSERT INTO knowledge_entries (tenant, kb_id, caiu_id, entry_type, display_name, text, tags, is_enabled, \
         author, from_document, version, updated) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, 1, ?11) \
         ON CONFLICT (tenant, kb_id, caiu_id) DO UPDATE SET entry_type = excluded.entry_type, \
         display_name = excluded.display_name, text = excluded.text, tags = excluded.tags, \
         is_enabled = excluded.is_enabled, author = excluded.author, \
         from_document = excluded.from_document, version = version + 1, updated = excluded.updated \
         RETURNING entry, version",
    )
    .bind(tenant.as_str())
    .bind(kb_id)
    .bind(&entry.caiu_id)
    .bind(&entry.entry_type)
    .bind(&entry.display_name)
    .bind(&entry.text)
    .bind(serde_json::Value::from(entry.tags.clone()).to_string())
    .bind(entry.is_enabled)
    .bind(author)
    .bind(from_document)
    .bind(now.unix_nanos())
    .fetch_one(&mut **transaction)
    .await?;
    let (number, version): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
    let words = format!(
        "INSERT OR REPLACE INTO {} (rowid, words) VALUES (?1, ?2)",
        words_of(tenant)
    );
    sqlx::query(sqlx::AssertSqlSafe(words))
        .bind(number)
        .bind(entry.words())
        .execute(&mut **transaction)
        .await?;
    Ok(version)
}

fn read(row: &SqliteRow) -> Result<EntryRow, StoreError> {
    let (tags, version): (&str, i64) = (row.try_get(5)?, row.try_get(8)?);
    Ok(EntryRow {
        kb_id: row.try_get(0)?,
        entry: Entry {
            caiu_id: row.try_get(1)?,
            entry_type: row.try_get(2)?,
            display_name: row.try_get(3)?,
            text: row.try_get(4)?,
            tags: serde_json::from_str(tags).map_err(|_| StoreError::Damaged {
                table: "knowledge_entries",
                column: "tags",
            })?,
            is_enabled: row.try_get(6)?,
        },
        author: row.try_get(7)?,
        version: version.unsigned_abs(),
        updated: Timestamp::from_unix_nanos(row.try_get(9)?),
    })
}
