//! Revisions of documents.

use std::collections::BTreeMap;

use core_types::Timestamp;
use sql_store::{Reader, Session, Statement};
use sqlx::FromRow;

use super::signed;
use crate::store::{Collection, NewRevision, RevisionRow, StoreError};

/// The columns of [`StoredRevision`].
const REVISIONS: &str = "SELECT id, revision, etag, label, from_file, same_version_as, created, '' AS text \
                         FROM document_revision r WHERE tenant = $1 AND kind = $2";
/// The same with the text.
const WITH_TEXT: &str = "SELECT id, revision, etag, label, from_file, same_version_as, created, text \
                         FROM document_revision r WHERE tenant = $1 AND kind = $2";

#[derive(FromRow)]
struct StoredRevision {
    id: String,
    revision: i64,
    etag: String,
    label: String,
    from_file: bool,
    same_version_as: i64,
    created: i64,
    text: String,
}

impl From<StoredRevision> for RevisionRow {
    fn from(stored: StoredRevision) -> Self {
        Self {
            number: stored.revision.unsigned_abs(),
            etag: stored.etag,
            label: stored.label,
            from_file: stored.from_file,
            same_version_as: stored.same_version_as.unsigned_abs(),
            created: Timestamp::from_unix_nanos(stored.created),
        }
    }
}

/// Returns a statement about the revisions of a collection.
fn of(collection: Collection, text: &'static str) -> Statement {
    Statement::new(text)
        .bind(collection.tenant.as_str())
        .bind(collection.kind)
}

pub(super) async fn newest(
    reader: &Reader,
    collection: Collection,
    ids: &[&str],
) -> Result<BTreeMap<String, RevisionRow>, StoreError> {
    let mut newest = of(collection, REVISIONS);
    newest.push(" AND id IN (").push_list(ids.iter().copied());
    newest.push(
        ") AND revision = (SELECT max(revision) FROM document_revision n \
         WHERE n.tenant = $1 AND n.kind = $2 AND n.id = r.id)",
    );
    let rows: Vec<StoredRevision> = reader.fetch_all(newest).await?;
    Ok(rows
        .into_iter()
        .map(|row| (row.id.clone(), row.into()))
        .collect())
}

pub(super) async fn one(
    reader: &Reader,
    collection: Collection,
    id: &str,
    number: u64,
) -> Result<Option<(RevisionRow, String)>, StoreError> {
    let mut one = of(collection, WITH_TEXT);
    one.push(" AND id = ").push_bind(id);
    one.push(" AND revision = ").push_bind(signed(number));
    let row: Option<StoredRevision> = reader.fetch_optional(one).await?;
    Ok(row.map(|mut row| {
        let text = std::mem::take(&mut row.text);
        (row.into(), text)
    }))
}

pub(super) async fn page(
    reader: &Reader,
    collection: Collection,
    id: &str,
    before: Option<u64>,
    limit: usize,
) -> Result<Vec<RevisionRow>, StoreError> {
    let mut page = of(collection, REVISIONS);
    page.push(" AND id = ").push_bind(id);
    page.push(" AND revision < ")
        .push_bind(before.map_or(i64::MAX, signed));
    page.push(" ORDER BY revision DESC LIMIT ").push_bind(limit);
    let rows: Vec<StoredRevision> = reader.fetch_all(page).await?;
    Ok(rows.into_iter().map(RevisionRow::from).collect())
}

pub(super) async fn add(
    session: &mut Session<'_>,
    collection: Collection,
    document: &NewRevision,
    now: Timestamp,
) -> Result<RevisionRow, StoreError> {
    let mut newest = of(collection, REVISIONS);
    newest.push(" AND id = ").push_bind(&document.id);
    newest.push(" ORDER BY revision DESC LIMIT 1");
    let newest: Option<StoredRevision> = session.fetch_optional(newest).await?;
    let number = match newest.map(RevisionRow::from) {
        Some(newest) if newest.etag == document.etag && newest.from_file == document.from_file => {
            return Ok(newest);
        }
        newest => newest.map_or(0, |newest| newest.number) + 1,
    };
    let same = of(
        collection,
        "SELECT coalesce(max(revision), 0) FROM document_revision WHERE tenant = $1 AND kind = $2 \
         AND id = $3 AND label = $4 AND label <> '' AND etag <> $5",
    );
    let same = same
        .bind(&document.id)
        .bind(&document.label)
        .bind(&document.etag);
    let (same,): (i64,) = session.fetch_one(same).await?;
    let insert = of(
        collection,
        "INSERT INTO document_revision (tenant, kind, id, revision, etag, label, from_file, \
         same_version_as, created, text) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
    );
    let insert = insert
        .bind(&document.id)
        .bind(signed(number))
        .bind(&document.etag)
        .bind(&document.label)
        .bind(document.from_file)
        .bind(same)
        .bind(now.unix_nanos())
        .bind(&document.text);
    session.execute(insert).await?;
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
    session: &mut Session<'_>,
    collection: Collection,
    id: &str,
    up_to: u64,
    used: &[u64],
) -> Result<(), StoreError> {
    let mut delete = of(
        collection,
        "DELETE FROM document_revision WHERE tenant = $1 AND kind = $2",
    );
    delete.push(" AND id = ").push_bind(id);
    delete.push(" AND revision <= ").push_bind(signed(up_to));
    if !used.is_empty() {
        let used = used.iter().copied().map(signed);
        delete
            .push(" AND revision NOT IN (")
            .push_list(used)
            .push(")");
    }
    session.execute(delete).await?;
    Ok(())
}
