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

/// Documents by id, and the id behind which more follow.
type Page<D> = (Vec<Known<D>>, Option<String>);

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
        let list = grpc_kit::list_of_tenant(tenant, &list);
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
    /// more follow; fewer once their texts exceed 2 MiB. A shared document is among them unless the tenant has one
    /// of its id.
    ///
    /// # Errors
    /// A store that does not work.
    pub async fn page(
        &self,
        tenant: Tenant,
        after: &str,
        limit: usize,
    ) -> Result<Page<K::Document>, StoreError> {
        self.refresh_unless_followed().await?;
        let (own, own_end) = self.page_of(tenant, after, limit).await?;
        if tenant == Tenant::SYSTEM {
            return Ok((own, own_end));
        }
        let (shared, shared_end) = self.page_of(Tenant::SYSTEM, after, limit).await?;
        if shared.is_empty() && shared_end.is_none() {
            return Ok((own, own_end));
        }
        // Up to here both are known.
        let end = match (own_end, shared_end) {
            (Some(own), Some(shared)) => Some(own.min(shared)),
            (own, shared) => own.or(shared),
        };
        let id = |known: &Known<K::Document>| K::id(&known.document).to_owned();
        let shared = shared.into_iter().map(Known::shared);
        let all = shared.chain(own).map(|known| (id(&known), known));
        let mut all: BTreeMap<String, Known<K::Document>> = all.collect();
        all.retain(|id, _| end.as_ref().is_none_or(|end| id <= end));
        let (mut entries, mut bytes, found) = (Vec::new(), 0, all.len());
        for known in all.into_values() {
            bytes += K::text(&known.document).len();
            if entries.len() == limit || bytes > PAGE_BYTES && !entries.is_empty() {
                break;
            }
            entries.push(known);
        }
        let end = match entries.len() < found {
            true => entries.last().map(id),
            false => end,
        };
        Ok((entries, end))
    }

    /// Returns a page of the documents of one tenant.
    async fn page_of(
        &self,
        tenant: Tenant,
        after: &str,
        limit: usize,
    ) -> Result<Page<K::Document>, StoreError> {
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
        let files = self.files_of(tenant);
        let later = files.by_id.keys().map(String::as_str);
        let later = later.filter(|id| *id > after && is_known(id));
        let ids: BTreeSet<&str> = stored.keys().map(String::as_str).chain(later).collect();
        let (mut entries, mut last, mut bytes) = (Vec::new(), "", 0);
        let mut more = known_to.is_some();
        for id in &ids {
            let known = self.in_force(tenant, id, stored.get(*id));
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
