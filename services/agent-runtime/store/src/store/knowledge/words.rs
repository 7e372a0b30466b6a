//! The index of the words of entries: FTS5 in a file, `tsvector` at a server.
//!
//! The order of what a search finds depends on all words of an index, so a tenant has one of its own: in a file a table
//! of its own, at a server counts of its own rows.

use core_types::Tenant;
use search_words::Terms;
use sql_store::{Database, Session, Statement, StoreError};
use sqlx::FromRow;

use super::StoredEntry;

/// The columns of [`StoredEntry`].
const COLUMNS: &str = "e.kb_id, e.caiu_id, e.entry_type, e.display_name, e.text, e.tags, e.is_enabled, e.author, \
                       e.version, e.updated";

/// An entry that a search finds.
#[derive(FromRow)]
pub(super) struct FoundEntry {
    /// Its rank; a lower one is better.
    pub(super) rank: f64,
    #[sqlx(flatten)]
    pub(super) entry: StoredEntry,
}

/// Makes the index of a tenant, unless it has one.
pub(super) async fn prepare(session: &mut Session<'_>, tenant: Tenant) -> Result<(), StoreError> {
    if let Session::Sqlite(_) = session {
        let prepare = Statement::of_names(format!(
            "CREATE VIRTUAL TABLE IF NOT EXISTS {} USING fts5 (words, tokenize = 'porter unicode61')",
            table_of(tenant)
        ));
        session.execute(prepare).await?;
    }
    Ok(())
}

/// Replaces the words of an entry by its number.
pub(super) async fn put(
    session: &mut Session<'_>,
    tenant: Tenant,
    entry: i64,
    words: &str,
) -> Result<(), StoreError> {
    let put = match session {
        Session::Sqlite(_) => Statement::of_names(format!(
            "INSERT OR REPLACE INTO {} (rowid, words) VALUES ($1, $2)",
            table_of(tenant)
        ))
        .bind(entry)
        .bind(words),
        Session::Postgres(_) => Statement::new(
            "INSERT INTO knowledge_words (tenant, entry, words) VALUES ($1, $2, to_tsvector('agent.words', $3)) \
             ON CONFLICT (entry) DO UPDATE SET words = excluded.words",
        )
        .bind(tenant.as_str())
        .bind(entry)
        .bind(words),
    };
    session.execute(put).await?;
    Ok(())
}

/// Deletes the words of entries that were deleted. A server does that with the entries.
pub(super) async fn delete(
    session: &mut Session<'_>,
    tenant: Tenant,
    entries: &[i64],
) -> Result<(), StoreError> {
    if let Session::Sqlite(_) = session
        && !entries.is_empty()
    {
        let delete = Statement::of_names(format!(
            "DELETE FROM {} WHERE rowid IN (SELECT value FROM json_each($1))",
            table_of(tenant)
        ));
        let entries = serde_json::json!(entries).to_string();
        session.execute(delete.bind(entries)).await?;
    }
    Ok(())
}

/// Removes the index of a tenant that has no entry.
pub(super) async fn remove(session: &mut Session<'_>, tenant: Tenant) -> Result<(), StoreError> {
    if let Session::Sqlite(_) = session {
        let remove = format!("DROP TABLE IF EXISTS {}", table_of(tenant));
        session.execute(Statement::of_names(remove)).await?;
    }
    Ok(())
}

/// Finds enabled entries with any of the terms, the best first, ties by knowledge base and id.
pub(super) async fn find(
    database: &Database,
    tenant: Tenant,
    kb_ids: &[&str],
    terms: &Terms,
    limit: u32,
) -> Result<Vec<FoundEntry>, StoreError> {
    let (mut query, grouped) = match database {
        Database::Sqlite(_) => (in_file(tenant, terms), ")"),
        Database::Postgres(_) => (at_server(terms), ") GROUP BY e.entry"),
    };
    query = query.bind(tenant.as_str());
    query.push("AND e.kb_id IN (");
    query.push_list(kb_ids.iter().copied()).push(grouped);
    query.push(" ORDER BY rank, e.kb_id, e.caiu_id LIMIT ");
    query.push_bind(limit);
    Ok(database.reader().fetch_all(query).await?)
}

/// Begins a search in a file for terms in the entries of the tenant `$2`.
fn in_file(tenant: Tenant, terms: &Terms) -> Statement {
    let words = table_of(tenant);
    Statement::of_names(format!(
        "SELECT {COLUMNS}, bm25({words}) AS rank FROM {words} JOIN knowledge_entries e ON e.entry = {words}.rowid \
         WHERE {words} MATCH $1 AND e.is_enabled AND e.tenant = $2 "
    ))
    .bind(terms.fts5())
}

/// Begins a search at a server for terms in the entries of the tenant `$2`. Each term is weighed by the share of these
/// entries that have it, with the formula of FTS5.
fn at_server(terms: &Terms) -> Statement {
    let mut query = Statement::new(
        "WITH term AS (SELECT phraseto_tsquery('agent.words', term) AS query \
         FROM unnest(string_to_array($1, '|')) AS term), \
         weighed AS (SELECT query, greatest(ln((number.entries - number.matching + 0.5) / (number.matching + 0.5)), \
         0.000001)::double precision AS weight FROM term CROSS JOIN LATERAL (SELECT \
         (SELECT count(*) FROM knowledge_words WHERE tenant = $2) AS entries, \
         (SELECT count(*) FROM knowledge_words WHERE tenant = $2 AND words @@ query) AS matching) AS number) \
         SELECT ",
    );
    query.push(COLUMNS).push(
        ", -sum(weighed.weight * ts_rank(w.words, weighed.query, 1)) AS rank FROM weighed \
         JOIN knowledge_words w ON w.tenant = $2 AND w.words @@ weighed.query \
         JOIN knowledge_entries e ON e.tenant = $2 AND e.entry = w.entry WHERE e.is_enabled ",
    );
    query.bind(terms.as_slice().join("|"))
}

/// Returns the quoted name of a tenant's table in a file. No name of a tenant has a quotation mark.
fn table_of(tenant: Tenant) -> String {
    format!("\"knowledge_words_{tenant}\"")
}
