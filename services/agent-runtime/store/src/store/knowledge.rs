//! Knowledge bases and their entries.

use agent_domain::knowledge::{Entry, KnowledgeBase};
use async_trait::async_trait;
use core_types::{Tenant, Timestamp};
use documents::{RequestStore, sqlite::requests};
use serde::{Deserialize, Serialize};
use serde_json::json;
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
    /// Returns all knowledge bases, by id.
    ///
    /// # Errors
    /// A database that does not work.
    async fn knowledge_bases(&self) -> Result<Vec<KnowledgeRow>, StoreError>;

    /// Stores a knowledge base in one commit: the new entries of its document replace the old ones,
    /// and entries of agents stay.
    ///
    /// # Errors
    /// A database that does not work.
    async fn put_knowledge_base(
        &self,
        base: &KnowledgeBase,
        from_file: bool,
        now: Timestamp,
    ) -> Result<(), StoreError>;

    /// Deletes a knowledge base with every entry. Returns whether it existed.
    ///
    /// # Errors
    /// A database that does not work.
    async fn delete_knowledge_base(&self, id: &str) -> Result<bool, StoreError>;

    /// Deletes an entry. Returns whether it existed.
    ///
    /// # Errors
    /// A database that does not work.
    async fn delete_entry(&self, kb_id: &str, caiu_id: &str) -> Result<bool, StoreError>;

    /// Returns an entry.
    ///
    /// # Errors
    /// A database that does not work.
    async fn entry(&self, kb_id: &str, caiu_id: &str) -> Result<Option<EntryRow>, StoreError>;

    /// Returns at most `limit` entries after `after`, by id.
    ///
    /// # Errors
    /// A database that does not work.
    async fn entries(
        &self,
        kb_id: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<EntryRow>, StoreError>;

    /// Finds enabled entries of knowledge bases by an expression of the index, the best match first.
    ///
    /// # Errors
    /// A database that does not work.
    async fn find_entries(
        &self,
        kb_ids: &[String],
        expression: &str,
        limit: u32,
    ) -> Result<Vec<EntryRow>, StoreError>;

    /// Writes an entry, and its request.
    ///
    /// # Errors
    /// A database that does not work.
    async fn put_entry(
        &self,
        kb_id: &str,
        entry: &Entry,
        author: &str,
        request: Option<&NamedRequest>,
        now: Timestamp,
    ) -> Result<WrittenEntry, StoreError>;
}

#[async_trait]
impl KnowledgeIndex for AgentStore {
    async fn knowledge_bases(&self) -> Result<Vec<KnowledgeRow>, StoreError> {
        let rows = sqlx::query(
            "SELECT kb_id, name, description, etag, from_file, \
             (SELECT count(*) FROM knowledge_entries e WHERE e.kb_id = b.kb_id) \
             FROM knowledge_bases b ORDER BY kb_id",
        );
        let rows = rows.fetch_all(self.database.reader()).await?;
        let read = |row: &SqliteRow| {
            Ok(KnowledgeRow {
                id: row.try_get(0)?,
                name: row.try_get(1)?,
                description: row.try_get(2)?,
                etag: row.try_get(3)?,
                from_file: row.try_get(4)?,
                entries: row.try_get(5)?,
            })
        };
        rows.iter().map(read).collect()
    }

    async fn put_knowledge_base(
        &self,
        base: &KnowledgeBase,
        from_file: bool,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let mut transaction = self.database.begin_write().await?;
        sqlx::query(
            "INSERT INTO knowledge_bases (kb_id, name, description, etag, from_file) \
             VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (kb_id) DO UPDATE SET name = excluded.name, \
             description = excluded.description, etag = excluded.etag, from_file = excluded.from_file",
        )
        .bind(&base.id)
        .bind(&base.name)
        .bind(&base.description)
        .bind(&base.etag)
        .bind(from_file)
        .execute(&mut *transaction)
        .await?;
        delete(&mut transaction, &base.id, "from_document = 1", "").await?;
        for entry in &base.entries {
            put(&mut transaction, &base.id, entry, "", true, now).await?;
        }
        Ok(transaction.commit().await?)
    }

    async fn delete_knowledge_base(&self, id: &str) -> Result<bool, StoreError> {
        let mut transaction = self.database.begin_write().await?;
        delete(&mut transaction, id, "1 = 1", "").await?;
        requests::forget(&mut transaction, Tenant::DEFAULT, WRITE, id).await?;
        let deleted = sqlx::query("DELETE FROM knowledge_bases WHERE kb_id = ?1")
            .bind(id)
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(deleted.rows_affected() > 0)
    }

    async fn delete_entry(&self, kb_id: &str, caiu_id: &str) -> Result<bool, StoreError> {
        let mut transaction = self.database.begin_write().await?;
        let deleted = delete(&mut transaction, kb_id, "caiu_id = ?2", caiu_id).await?;
        transaction.commit().await?;
        Ok(deleted > 0)
    }

    async fn entry(&self, kb_id: &str, caiu_id: &str) -> Result<Option<EntryRow>, StoreError> {
        let query =
            format!("SELECT {COLUMNS} FROM knowledge_entries e WHERE kb_id = ?1 AND caiu_id = ?2");
        let row = sqlx::query(sqlx::AssertSqlSafe(query))
            .bind(kb_id)
            .bind(caiu_id)
            .fetch_optional(self.database.reader())
            .await?;
        row.as_ref().map(read).transpose()
    }

    async fn entries(
        &self,
        kb_id: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<EntryRow>, StoreError> {
        let query = format!(
            "SELECT {COLUMNS} FROM knowledge_entries e WHERE kb_id = ?1 AND caiu_id > ?2 \
             ORDER BY caiu_id LIMIT ?3"
        );
        let rows = sqlx::query(sqlx::AssertSqlSafe(query))
            .bind(kb_id)
            .bind(after)
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .fetch_all(self.database.reader())
            .await?;
        rows.iter().map(read).collect()
    }

    async fn find_entries(
        &self,
        kb_ids: &[String],
        expression: &str,
        limit: u32,
    ) -> Result<Vec<EntryRow>, StoreError> {
        let query = format!(
            "SELECT {COLUMNS} FROM knowledge_words w JOIN knowledge_entries e ON e.entry = w.rowid \
             WHERE knowledge_words MATCH ?1 AND e.is_enabled = 1 \
             AND e.kb_id IN (SELECT value FROM json_each(?2)) \
             ORDER BY bm25(knowledge_words), e.kb_id, e.caiu_id LIMIT ?3"
        );
        let rows = sqlx::query(sqlx::AssertSqlSafe(query))
            .bind(expression)
            .bind(serde_json::Value::from(kb_ids).to_string())
            .bind(limit)
            .fetch_all(self.database.reader())
            .await?;
        rows.iter().map(read).collect()
    }

    async fn put_entry(
        &self,
        kb_id: &str,
        entry: &Entry,
        author: &str,
        request: Option<&NamedRequest>,
        now: Timestamp,
    ) -> Result<WrittenEntry, StoreError> {
        let mut transaction = self.database.begin_write().await?;
        let version = put(&mut transaction, kb_id, entry, author, false, now).await?;
        let written = WrittenEntry {
            caiu_id: entry.caiu_id.clone(),
            version: version.unsigned_abs(),
            is_enabled: entry.is_enabled,
        };
        if let Some(request) = request {
            let (request, answer) = (request.within(WRITE, kb_id), json!(written).to_string());
            requests::note(&mut transaction, Tenant::DEFAULT, &request, &answer, now).await?;
        }
        transaction.commit().await?;
        Ok(written)
    }
}

/// Deletes entries that meet a condition, which may name a value by `?2`.
async fn delete(
    transaction: &mut Transaction<'static, Sqlite>,
    kb_id: &str,
    condition: &str,
    value: &str,
) -> Result<u64, StoreError> {
    let words = format!(
        "DELETE FROM knowledge_words WHERE rowid IN \
         (SELECT entry FROM knowledge_entries WHERE kb_id = ?1 AND ?2 = ?2 AND {condition})"
    );
    let entries =
        format!("DELETE FROM knowledge_entries WHERE kb_id = ?1 AND ?2 = ?2 AND {condition}");
    let mut deleted = 0;
    for statement in [words, entries] {
        let done = sqlx::query(sqlx::AssertSqlSafe(statement))
            .bind(kb_id)
            .bind(value)
            .execute(&mut **transaction)
            .await?;
        deleted = done.rows_affected();
    }
    Ok(deleted)
}

/// Writes an entry and its words. Returns its version.
async fn put(
    transaction: &mut Transaction<'static, Sqlite>,
    kb_id: &str,
    entry: &Entry,
    author: &str,
    from_document: bool,
    now: Timestamp,
) -> Result<i64, StoreError> {
    let row = sqlx::query(
        "INSERT INTO knowledge_entries (kb_id, caiu_id, entry_type, display_name, text, tags, is_enabled, \
         author, from_document, version, updated) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 1, ?10) \
         ON CONFLICT (kb_id, caiu_id) DO UPDATE SET entry_type = excluded.entry_type, \
         display_name = excluded.display_name, text = excluded.text, tags = excluded.tags, \
         is_enabled = excluded.is_enabled, author = excluded.author, \
         from_document = excluded.from_document, version = version + 1, updated = excluded.updated \
         RETURNING entry, version",
    )
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
    sqlx::query("INSERT OR REPLACE INTO knowledge_words (rowid, words) VALUES (?1, ?2)")
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
