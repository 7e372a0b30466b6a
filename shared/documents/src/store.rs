//! The seam to a database.

use std::collections::BTreeMap;

use async_trait::async_trait;
use core_types::{Tenant, Timestamp};

use crate::requests::{Request, RequestStore, Seen};

pub use sql_store::StoreError;

/// The documents of one kind and tenant, which no id of another collection reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Collection {
    /// The tenant.
    pub tenant: Tenant,
    /// The name of the kind.
    pub kind: &'static str,
}

/// A document that was put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentRow {
    /// The id.
    pub id: String,
    /// The number of times that a document was put under the id since it was last deleted.
    pub version: u64,
    /// The document as it was written.
    pub text: String,
}

/// A document to be stored.
#[derive(Clone, Copy, Debug)]
pub struct NewDocument<'a> {
    /// The id.
    pub id: &'a str,
    /// The document as it was written.
    pub text: &'a str,
    /// The version that is replaced; zero if none is stored.
    pub replaces: u64,
    /// The request of the change; `None` if it is never repeated.
    pub request: Option<Request<'a>>,
    /// The time of the change.
    pub now: Timestamp,
}

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
    /// The time at which it came into force.
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

/// Keeps documents, their revisions and the requests that changed them.
///
/// Every method fails with a [`StoreError`] when the database does not work or a row is damaged.
#[async_trait]
pub trait DocumentStore: RequestStore {
    /// Returns a document.
    async fn get(
        &self,
        collection: Collection,
        id: &str,
    ) -> Result<Option<DocumentRow>, StoreError>;

    /// Returns at most `limit` documents by id, starting after `after`; no more once their texts
    /// exceed `most_bytes`.
    async fn page(
        &self,
        collection: Collection,
        after: &str,
        limit: usize,
        most_bytes: usize,
    ) -> Result<Vec<DocumentRow>, StoreError>;

    /// Stores a document and its request in one commit. Stores neither and returns `false` if another version
    /// than the named one is stored by now, or the request id was used.
    async fn put(&self, collection: Collection, new: NewDocument<'_>) -> Result<bool, StoreError>;

    /// Stores a document in place of any, unless its request was seen before. Returns the earlier
    /// record of the request.
    async fn replace(
        &self,
        collection: Collection,
        id: &str,
        text: &str,
        request: Option<Request<'_>>,
        now: Timestamp,
    ) -> Result<Seen, StoreError> {
        loop {
            if let Some(request) = request {
                match self.seen(collection.tenant, request).await? {
                    Seen::New => {}
                    seen => return Ok(seen),
                }
            }
            let replaces = self.get(collection, id).await?.map_or(0, |row| row.version);
            let new = NewDocument {
                id,
                text,
                replaces,
                request,
                now,
            };
            // Another process may have changed it meanwhile.
            if self.put(collection, new).await? {
                return Ok(Seen::New);
            }
        }
    }

    /// Deletes a document and stores its request in one commit. Returns whether there was a
    /// document; without one the request is not stored either.
    async fn delete(
        &self,
        collection: Collection,
        id: &str,
        request: Option<Request<'_>>,
        now: Timestamp,
    ) -> Result<bool, StoreError>;

    /// Returns the newest revision of each of these documents, by id.
    async fn newest_revisions(
        &self,
        collection: Collection,
        ids: &[&str],
    ) -> Result<BTreeMap<String, RevisionRow>, StoreError>;

    /// Returns a revision with its text.
    async fn revision(
        &self,
        collection: Collection,
        id: &str,
        number: u64,
    ) -> Result<Option<(RevisionRow, String)>, StoreError>;

    /// Returns at most `limit` revisions of a document before `before`, the newest first.
    async fn revisions(
        &self,
        collection: Collection,
        id: &str,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<RevisionRow>, StoreError>;

    /// Stores documents that came into force, in one commit; a document that is the newest revision
    /// already is not stored again. Returns their revisions, in order.
    async fn add_revisions(
        &self,
        collection: Collection,
        new: &[NewRevision],
        now: Timestamp,
    ) -> Result<Vec<RevisionRow>, StoreError>;

    /// Deletes the revisions of a document up to a number, except revisions in use.
    async fn delete_revisions(
        &self,
        collection: Collection,
        id: &str,
        up_to: u64,
        used: &[u64],
    ) -> Result<(), StoreError>;

    /// Deletes at most `limit` documents, revisions and requests each of a tenant that is being removed. Returns the
    /// number of those that are left.
    async fn remove_tenant(&self, tenant: Tenant, limit: u32) -> Result<u64, StoreError>;

    /// Closes the database.
    async fn close(&self);
}
