//! Revisions of documents.

use std::collections::BTreeMap;

use core_types::Timestamp;
use sqlx::{Row, Sqlite, Transaction, sqlite::SqliteRow};

use super::{AgentStore, StoreError};

/// A revision of a document, without its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevisionRow {
    /// The number, from 1.
    pub number: u64,
    /// The digest of the text.
    pub etag: String,
    /// The author's label; may be empty.
    pub label: String,
    /// Whether it is a file.
    pub from_file: bool,
    /// The newest earlier revision with the same label and another text; zero for none.
    pub same_version_as: u64,
    /// When it came into force.
    pub created: Timestamp,
}

/// A document that came into force.
#[derive(Clone, Debug)]
pub struct NewRevision {
    /// The id of the document.
    pub id: String,
    /// The digest of the text.
    pub etag: String,
    /// The author's label; may be empty.
    pub label: String,
    /// Whether it is a file.
    pub from_file: bool,
    /// The document as it was written.
    pub text: String,
}

const COLUMNS: &str = "revision, etag, label, from_file, same_version_as, created";

impl AgentStore {
    /// Returns the newest revision of each document of a kind, by id.
    ///
    /// # Errors
    /// A database that does not work.
    pub(crate) async fn newest_revisions(
        &self,
        kind: &str,
    ) -> Result<BTreeMap<String, RevisionRow>, StoreError> {
        let query = format!(
            "SELECT {COLUMNS}, document_id FROM revisions r WHERE kind = ?1 AND revision = \
             (SELECT max(revision) FROM revisions n WHERE n.kind = ?1 AND n.document_id = r.document_id)"
        );
        let rows = sqlx::query(sqlx::AssertSqlSafe(query)).bind(kind);
        let rows = rows.fetch_all(self.database.reader()).await?;
        let newest = rows.iter().map(|row| Ok((row.try_get(6)?, read(row)?)));
        newest.collect()
    }

    /// Returns a revision with its text, the newest if none is named.
    ///
    /// # Errors
    /// A database that does not work.
    pub async fn revision(
        &self,
        kind: &str,
        id: &str,
        number: Option<u64>,
    ) -> Result<Option<(RevisionRow, String)>, StoreError> {
        let query = format!(
            "SELECT {COLUMNS}, text FROM revisions WHERE kind = ?1 AND document_id = ?2 \
             AND (?3 IS NULL OR revision = ?3) ORDER BY revision DESC LIMIT 1"
        );
        let row = sqlx::query(sqlx::AssertSqlSafe(query))
            .bind(kind)
            .bind(id)
            .bind(number.map(signed))
            .fetch_optional(self.database.reader())
            .await?;
        row.map(|row| Ok((read(&row)?, row.try_get(6)?)))
            .transpose()
    }

    /// Returns at most `limit` revisions of a document, the newest first, those before `before`.
    ///
    /// # Errors
    /// A database that does not work.
    pub async fn revisions(
        &self,
        kind: &str,
        id: &str,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<RevisionRow>, StoreError> {
        let query = format!(
            "SELECT {COLUMNS} FROM revisions WHERE kind = ?1 AND document_id = ?2 AND revision < ?3 \
             ORDER BY revision DESC LIMIT ?4"
        );
        let rows = sqlx::query(sqlx::AssertSqlSafe(query))
            .bind(kind)
            .bind(id)
            .bind(before.map_or(i64::MAX, signed))
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .fetch_all(self.database.reader())
            .await?;
        rows.iter().map(read).collect()
    }

    /// Stores documents that came into force, in one commit. One that is the newest revision already is
    /// not stored again. Returns their revisions, in order.
    ///
    /// # Errors
    /// A database that does not work.
    pub(crate) async fn add_revisions(
        &self,
        kind: &str,
        new: &[NewRevision],
        now: Timestamp,
    ) -> Result<Vec<RevisionRow>, StoreError> {
        let mut transaction = self.database.begin_write().await?;
        let mut added = Vec::new();
        for document in new {
            added.push(add(&mut transaction, kind, document, now).await?);
        }
        transaction.commit().await?;
        Ok(added)
    }

    /// Deletes the revisions of a document up to a number, but for those that are used.
    ///
    /// # Errors
    /// A database that does not work.
    pub(crate) async fn delete_revisions(
        &self,
        kind: &str,
        id: &str,
        up_to: u64,
        used: &[u64],
    ) -> Result<(), StoreError> {
        let used = serde_json::Value::from(used).to_string();
        let mut transaction = self.database.begin_write().await?;
        sqlx::query(
            "DELETE FROM revisions WHERE kind = ?1 AND document_id = ?2 AND revision <= ?3 \
             AND revision NOT IN (SELECT value FROM json_each(?4))",
        )
        .bind(kind)
        .bind(id)
        .bind(signed(up_to))
        .bind(used)
        .execute(&mut *transaction)
        .await?;
        Ok(transaction.commit().await?)
    }
}

async fn add(
    transaction: &mut Transaction<'static, Sqlite>,
    kind: &str,
    document: &NewRevision,
    now: Timestamp,
) -> Result<RevisionRow, StoreError> {
    let query = format!(
        "SELECT {COLUMNS} FROM revisions WHERE kind = ?1 AND document_id = ?2 \
         ORDER BY revision DESC LIMIT 1"
    );
    let newest = sqlx::query(sqlx::AssertSqlSafe(query))
        .bind(kind)
        .bind(&document.id)
        .fetch_optional(&mut **transaction)
        .await?;
    let newest = newest.as_ref().map(read).transpose()?;
    let number = match newest {
        Some(newest) if newest.etag == document.etag && newest.from_file == document.from_file => {
            return Ok(newest);
        }
        newest => newest.map_or(0, |newest| newest.number) + 1,
    };
    let same: i64 = sqlx::query_scalar(
        "SELECT coalesce(max(revision), 0) FROM revisions WHERE kind = ?1 AND document_id = ?2 \
         AND label = ?3 AND label <> '' AND etag <> ?4",
    )
    .bind(kind)
    .bind(&document.id)
    .bind(&document.label)
    .bind(&document.etag)
    .fetch_one(&mut **transaction)
    .await?;
    sqlx::query(
        "INSERT INTO revisions (kind, document_id, revision, etag, label, from_file, same_version_as, \
         created, text) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )
    .bind(kind)
    .bind(&document.id)
    .bind(signed(number))
    .bind(&document.etag)
    .bind(&document.label)
    .bind(document.from_file)
    .bind(same)
    .bind(now.unix_nanos())
    .bind(&document.text)
    .execute(&mut **transaction)
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

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
