//! Lists of documents, a page at a time.

use std::collections::{BTreeMap, BTreeSet};

use core_types::{PageToken, Tenant};
use grpc_kit::Failure;
use run_events::store_failure;

use super::{Documents, Known, collection};
use crate::{
    kind::Kind,
    store::{DocumentRow, StoreError},
};

/// The most bytes of the texts of a page with several documents.
const PAGE_BYTES: usize = 2 << 20;

/// A page of documents.
#[derive(Debug)]
pub struct Listed<D> {
    /// The documents, by id.
    pub entries: Vec<Known<D>>,
    /// The token of the next page; empty if there is none.
    pub next_page_token: String,
    /// Whether it is the first page.
    pub is_first: bool,
}

impl<K: Kind> Documents<K> {
    /// Returns the page of a list that a token and a size request. It is shorter than requested
    /// where the texts of its documents would exceed 2 MiB.
    ///
    /// # Errors
    /// A token of another list, or a store that does not work.
    pub async fn list(
        &self,
        tenant: Tenant,
        page_token: &str,
        page_size: i32,
    ) -> Result<Listed<K::Document>, Failure> {
        let list = format!("{}s", K::NAME);
        let token = grpc_kit::page_token(&list, page_token)?;
        let after = token.as_ref().map_or("", PageToken::last_key);
        let size = core_types::page::page_size(page_size);
        let page = self.page(tenant, after, size).await;
        let (entries, more) = page.map_err(|error| store_failure(&error))?;
        let last = more.map(|last| PageToken::after(last).encode(&list));
        Ok(Listed {
            entries,
            next_page_token: last.unwrap_or_default(),
            is_first: token.is_none(),
        })
    }

    /// Returns at most `limit` documents by id, starting after `after`, and the id behind which
    /// more follow; fewer once their texts exceed 2 MiB.
    ///
    /// # Errors
    /// A store that does not work.
    pub async fn page(
        &self,
        tenant: Tenant,
        after: &str,
        limit: usize,
    ) -> Result<(Vec<Known<K::Document>>, Option<String>), StoreError> {
        self.refresh_unless_followed().await?;
        let store = &self.inner.parts.store;
        let page = store.page(collection::<K>(tenant), after, limit + 1, PAGE_BYTES);
        let stored: BTreeMap<String, DocumentRow> = page
            .await?
            .into_iter()
            .map(|row| (row.id.clone(), row))
            .collect();
        let bytes: usize = stored.values().map(|row| row.text.len()).sum();
        // Behind a page that ended for its bytes the store may have ids before the ids of later
        // files.
        let known_to = stored.keys().next_back().filter(|_| bytes > PAGE_BYTES);
        let is_known = |id: &str| known_to.is_none_or(|last| id <= last.as_str());
        let files = self.files();
        let later = files.by_id.keys().map(String::as_str);
        let later = later.filter(|id| *id > after && is_known(id));
        let ids: BTreeSet<&str> = stored.keys().map(String::as_str).chain(later).collect();
        let (mut entries, mut last, mut bytes) = (Vec::new(), "", 0);
        let mut more = known_to.is_some();
        for id in &ids {
            let known = self.in_force(id, stored.get(*id));
            bytes += known
                .as_ref()
                .map_or(0, |known| K::text(&known.document).len());
            if entries.len() == limit || bytes > PAGE_BYTES && !entries.is_empty() {
                more = true;
                break;
            }
            last = id;
            entries.extend(known);
        }
        if K::REVISIONS && !entries.is_empty() {
            let listed = entries.iter().map(|known| K::id(&known.document));
            let listed: Vec<&str> = listed.collect();
            let mut newest = self.newest(tenant, &listed).await?;
            for known in &mut entries {
                known.revision = newest.remove(K::id(&known.document));
            }
        }
        Ok((entries, more.then(|| last.to_owned())))
    }
}
