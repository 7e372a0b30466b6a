//! Knowledge bases and their entries.

mod words;

use agent_domain::knowledge::{Entry, KnowledgeBase};
use async_trait::async_trait;
use core_types::{Tenant, Timestamp};
use documents::{RequestStore, database::requests};
use search_words::Terms;
use serde::{Deserialize, Serialize};
use serde_json::json;
use sql_store::{Database, Session, Statement};
use sqlx::FromRow;

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

/// Reads [`StoredEntry`].
const SELECT: &str = "SELECT kb_id, caiu_id, entry_type, display_name, text, tags, is_enabled, author, version, updated \
                      FROM knowledge_entries e WHERE tenant = $1 AND kb_id = $2 ";

/// The columns of an entry.
#[derive(FromRow)]
struct StoredEntry {
    kb_id: String,
    caiu_id: String,
    entry_type: String,
    display_name: String,
    text: String,
    tags: String,
    is_enabled: bool,
    author: String,
    version: i64,
    updated: i64,
}

/// The columns of [`KnowledgeRow`], apart from whether it is shared.
type StoredBase = (String, String, String, String, bool, i64);

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

    /// Finds enabled entries of knowledge bases that exist with any of the terms, the best match first, each with its
    /// rank; a lower one is better. A rare term counts more than a common one. Ranks of two databases differ.
    ///
    /// # Errors
    /// A database that does not work.
    async fn find_entries(
        &self,
        tenant: Tenant,
        kb_ids: &[&str],
        terms: &Terms,
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
        let rows = Statement::new("SELECT tenant, kb_id FROM knowledge_bases");
        let rows: Vec<(String, String)> = self.database.reader().fetch_all(rows).await?;
        let read = |(tenant, id): (String, String)| {
            let tenant = Tenant::new(&tenant).map_err(|_| StoreError::Damaged {
                table: "knowledge_bases",
                column: "tenant",
            })?;
            Ok((tenant, id))
        };
        rows.into_iter().map(read).collect()
    }

    async fn knowledge_bases(&self, tenant: Tenant) -> Result<Vec<KnowledgeRow>, StoreError> {
        let rows = Statement::new(
            "SELECT kb_id, name, description, etag, from_file, \
             (SELECT count(*) FROM knowledge_entries e WHERE e.tenant = b.tenant AND e.kb_id = b.kb_id) \
             FROM knowledge_bases b WHERE tenant = $1 ORDER BY kb_id",
        );
        let rows = rows.bind(tenant.as_str());
        let rows: Vec<StoredBase> = self.database.reader().fetch_all(rows).await?;
        let read = |(id, name, description, etag, from_file, entries): StoredBase| KnowledgeRow {
            id,
            name,
            description,
            etag,
            from_file,
            is_shared: false,
            entries: u32::try_from(entries).unwrap_or(u32::MAX),
        };
        Ok(rows.into_iter().map(read).collect())
    }

    async fn put_knowledge_base(
        &self,
        tenant: Tenant,
        base: &KnowledgeBase,
        from_file: bool,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let mut transaction = self.database.begin().await?;
        let mut session = transaction.session();
        words::prepare(&mut session, tenant).await?;
        let insert = Statement::new(
            "INSERT INTO knowledge_bases (tenant, kb_id, name, description, etag, from_file) \
             VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (tenant, kb_id) DO UPDATE SET name = excluded.name, \
             description = excluded.description, etag = excluded.etag, from_file = excluded.from_file",
        )
        .bind(tenant.as_str())
        .bind(&base.id)
        .bind(&base.name)
        .bind(&base.description)
        .bind(&base.etag)
        .bind(from_file);
        session.execute(insert).await?;
        let kb = (tenant, base.id.as_str());
        let mut of_document = all_of(kb);
        of_document.push("AND from_document");
        delete(&mut session, tenant, of_document).await?;
        for entry in &base.entries {
            put(&mut session, kb, entry, "", true, now).await?;
        }
        Ok(transaction.commit().await?)
    }

    async fn delete_knowledge_base(&self, tenant: Tenant, id: &str) -> Result<bool, StoreError> {
        let mut transaction = self.database.begin().await?;
        let mut session = transaction.session();
        delete(&mut session, tenant, all_of((tenant, id))).await?;
        let base = Statement::new("DELETE FROM knowledge_bases WHERE tenant = $1 AND kb_id = $2");
        let base = base.bind(tenant.as_str()).bind(id);
        let deleted = session.execute(base).await?;
        requests::forget(session, tenant, WRITE, id).await?;
        transaction.commit().await?;
        Ok(deleted > 0)
    }

    async fn delete_entry(
        &self,
        tenant: Tenant,
        kb_id: &str,
        caiu_id: &str,
    ) -> Result<bool, StoreError> {
        let mut transaction = self.database.begin().await?;
        let mut entry = all_of((tenant, kb_id));
        entry.push("AND caiu_id = ").push_bind(caiu_id);
        let deleted = delete(&mut transaction.session(), tenant, entry).await?;
        transaction.commit().await?;
        Ok(deleted > 0)
    }

    async fn entry(
        &self,
        tenant: Tenant,
        kb_id: &str,
        caiu_id: &str,
    ) -> Result<Option<EntryRow>, StoreError> {
        let mut query = Statement::new(SELECT).bind(tenant.as_str()).bind(kb_id);
        query.push("AND caiu_id = ").push_bind(caiu_id);
        let row: Option<StoredEntry> = self.database.reader().fetch_optional(query).await?;
        row.map(read).transpose()
    }

    async fn entries(
        &self,
        tenant: Tenant,
        kb_id: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<EntryRow>, StoreError> {
        let mut query = Statement::new(SELECT).bind(tenant.as_str()).bind(kb_id);
        query.push("AND caiu_id > ").push_bind(after);
        query.push(" ORDER BY caiu_id LIMIT ").push_bind(limit);
        let rows: Vec<StoredEntry> = self.database.reader().fetch_all(query).await?;
        rows.into_iter().map(read).collect()
    }

    async fn find_entries(
        &self,
        tenant: Tenant,
        kb_ids: &[&str],
        terms: &Terms,
        limit: u32,
    ) -> Result<Vec<(f64, EntryRow)>, StoreError> {
        let found = words::find(&self.database, tenant, kb_ids, terms, limit).await?;
        let found = found.into_iter();
        found
            .map(|found| Ok((found.rank, read(found.entry)?)))
            .collect()
    }

    async fn put_entry(
        &self,
        (tenant, kb_id): (Tenant, &str),
        entry: &Entry,
        author: &str,
        request: Option<&NamedRequest>,
        now: Timestamp,
    ) -> Result<WrittenEntry, StoreError> {
        let mut transaction = self.database.begin().await?;
        let mut session = transaction.session();
        let kb = (tenant, kb_id);
        let version = put(&mut session, kb, entry, author, false, now).await?;
        let written = WrittenEntry {
            caiu_id: entry.caiu_id.clone(),
            version: version.unsigned_abs(),
            is_enabled: entry.is_enabled,
        };
        if let Some(request) = request {
            let (request, answer) = (request.within(WRITE, kb_id), json!(written).to_string());
            requests::note(session, tenant, &request, &answer, now).await?;
        }
        transaction.commit().await?;
        Ok(written)
    }
}

/// Reads the number of an entry, its tenant and the texts of its words.
type Indexed = (i64, String, String, String, String);

impl AgentStore {
    /// Indexes the words of all entries, after rows were copied from another database.
    ///
    /// # Errors
    /// A database that does not work, or a damaged row.
    pub async fn index_knowledge(&self) -> Result<(), StoreError> {
        let mut last = 0;
        loop {
            let page = Statement::new(
                "SELECT entry, tenant, display_name, text, tags FROM knowledge_entries WHERE entry > $1 \
                 ORDER BY entry LIMIT 200",
            );
            let page: Vec<Indexed> = self.database.reader().fetch_all(page.bind(last)).await?;
            let Some(end) = page.last() else {
                return Ok(());
            };
            last = end.0;
            let mut transaction = self.database.begin().await?;
            let mut session = transaction.session();
            for (number, tenant, display_name, text, tags) in page {
                let damaged = |column| StoreError::Damaged {
                    table: "knowledge_entries",
                    column,
                };
                let tenant = Tenant::new(&tenant).map_err(|_| damaged("tenant"))?;
                let entry = Entry {
                    display_name,
                    text,
                    tags: serde_json::from_str(&tags).map_err(|_| damaged("tags"))?,
                    ..Entry::default()
                };
                words::prepare(&mut session, tenant).await?;
                words::put(&mut session, tenant, number, &entry.words()).await?;
            }
            transaction.commit().await?;
        }
    }
}

/// Begins a statement that deletes the entries of a knowledge base; a further condition may follow.
fn all_of((tenant, kb_id): (Tenant, &str)) -> Statement {
    let delete = "DELETE FROM knowledge_entries WHERE tenant = $1 AND kb_id = $2 ";
    Statement::new(delete).bind(tenant.as_str()).bind(kb_id)
}

/// Deletes entries of a tenant with their words. Returns their number.
async fn delete(
    session: &mut Session<'_>,
    tenant: Tenant,
    mut entries: Statement,
) -> Result<usize, StoreError> {
    entries.push(" RETURNING entry");
    let deleted: Vec<(i64,)> = session.fetch_all(entries).await?;
    let deleted: Vec<i64> = deleted.into_iter().map(|(entry,)| entry).collect();
    words::delete(session, tenant, &deleted).await?;
    Ok(deleted.len())
}

/// Deletes at most `limit` entries of a tenant that is being removed, and at last the index of their words. Returns the
/// number of entries that are left.
pub(super) async fn remove_entries(
    database: &Database,
    tenant: Tenant,
    limit: u32,
) -> Result<u64, StoreError> {
    let mut transaction = database.begin().await?;
    let mut session = transaction.session();
    let some = Statement::new(
        "DELETE FROM knowledge_entries WHERE tenant = $1 AND entry IN \
         (SELECT entry FROM knowledge_entries WHERE tenant = $1 ORDER BY entry LIMIT $2)",
    );
    let some = some.bind(tenant.as_str()).bind(limit);
    delete(&mut session, tenant, some).await?;
    let count = Statement::new("SELECT count(*) FROM knowledge_entries WHERE tenant = $1");
    let (left,): (i64,) = session.fetch_one(count.bind(tenant.as_str())).await?;
    if left == 0 {
        words::remove(&mut session, tenant).await?;
    }
    transaction.commit().await?;
    Ok(left.unsigned_abs())
}

/// Writes an entry and its words. Returns its version.
async fn put(
    session: &mut Session<'_>,
    (tenant, kb_id): (Tenant, &str),
    entry: &Entry,
    author: &str,
    from_document: bool,
    now: Timestamp,
) -> Result<i64, StoreError> {
    let insert = Statement::new(
        "INSERT INTO knowledge_entries AS e (tenant, kb_id, caiu_id, entry_type, display_name, text, tags, is_enabled, \
         author, from_document, version, updated) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 1, $11) \
         ON CONFLICT (tenant, kb_id, caiu_id) DO UPDATE SET entry_type = excluded.entry_type, \
         display_name = excluded.display_name, text = excluded.text, tags = excluded.tags, \
         is_enabled = excluded.is_enabled, author = excluded.author, \
         from_document = excluded.from_document, version = e.version + 1, updated = excluded.updated \
         RETURNING entry, version",
    )
    .bind(tenant.as_str())
    .bind(kb_id)
    .bind(&entry.caiu_id)
    .bind(&entry.entry_type)
    .bind(&entry.display_name)
    .bind(&entry.text)
    .bind(json!(entry.tags).to_string())
    .bind(entry.is_enabled)
    .bind(author)
    .bind(from_document)
    .bind(now.unix_nanos());
    let (number, version): (i64, i64) = session.fetch_one(insert).await?;
    words::put(session, tenant, number, &entry.words()).await?;
    Ok(version)
}

fn read(row: StoredEntry) -> Result<EntryRow, StoreError> {
    Ok(EntryRow {
        kb_id: row.kb_id,
        entry: Entry {
            caiu_id: row.caiu_id,
            entry_type: row.entry_type,
            display_name: row.display_name,
            text: row.text,
            tags: serde_json::from_str(&row.tags).map_err(|_| StoreError::Damaged {
                table: "knowledge_entries",
                column: "tags",
            })?,
            is_enabled: row.is_enabled,
        },
        author: row.author,
        version: row.version.unsigned_abs(),
        updated: Timestamp::from_unix_nanos(row.updated),
    })
}
