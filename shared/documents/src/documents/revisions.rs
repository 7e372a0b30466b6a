//! Revisions of documents (rules G101 to G104).

use std::{collections::BTreeMap, sync::Arc};

use core_types::{LoadDiagnostic, LoadSeverity, Tenant};

use super::{Documents, Known, collection};
use crate::{
    files::Files,
    kind::Kind,
    store::{NewRevision, RevisionRow, StoreError},
};

/// The number of revisions of a document that are kept without a run that uses them.
const KEPT: u64 = 100;

impl<K: Kind> Documents<K> {
    /// Returns at most `limit` revisions of a document before `before`, the newest first.
    ///
    /// # Errors
    /// A store that does not work.
    pub async fn revisions(
        &self,
        tenant: Tenant,
        id: &str,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<RevisionRow>, StoreError> {
        let store = &self.inner.parts.store;
        store
            .revisions(collection::<K>(tenant), id, before, limit)
            .await
    }

    pub(super) async fn newest(
        &self,
        tenant: Tenant,
        ids: &[&str],
    ) -> Result<BTreeMap<String, RevisionRow>, StoreError> {
        let store = &self.inner.parts.store;
        store.newest_revisions(collection::<K>(tenant), ids).await
    }

    /// Returns the revision that a document made, as long as it is kept.
    pub(super) async fn revision_of(
        &self,
        tenant: Tenant,
        document: &K::Document,
    ) -> Result<Option<RevisionRow>, StoreError> {
        if !K::REVISIONS {
            return Ok(None);
        }
        let kept = self.revisions(tenant, K::id(document), None, usize::MAX);
        let etag = K::etag(document);
        let mut kept = kept.await?.into_iter();
        Ok(kept.find(|row| row.etag == etag && !row.from_file))
    }

    /// Notes the files that are in force and no revision yet. Files belong to the default tenant.
    pub(super) async fn note_files(&self, files: &Files<K>) -> Result<(), StoreError> {
        let tenant = Tenant::DEFAULT;
        let ids: Vec<&str> = files.by_id.keys().map(String::as_str).collect();
        let newest = self.newest(tenant, &ids).await?;
        let mut new = Vec::new();
        for (id, document) in &files.by_id {
            let row = newest.get(id);
            if row.is_some_and(|row| row.from_file && row.etag == K::etag(document)) {
                continue;
            }
            let stored = self
                .inner
                .parts
                .store
                .get(collection::<K>(tenant), id)
                .await?;
            if stored.and_then(|row| self.parse(tenant, &row)).is_none() {
                new.push(Known {
                    document: Arc::clone(document),
                    from_file: true,
                    is_shared: false,
                    revision: None,
                });
            }
        }
        self.note(tenant, new).await
    }

    /// Notes documents that came into force, unless their newest revision is the same already.
    /// Revisions that are no longer kept are deleted.
    pub(super) async fn note(
        &self,
        tenant: Tenant,
        in_force: Vec<Known<K::Document>>,
    ) -> Result<(), StoreError> {
        if !K::REVISIONS || in_force.is_empty() {
            return Ok(());
        }
        let new = in_force.iter().map(|known| NewRevision {
            id: K::id(&known.document).to_owned(),
            etag: K::etag(&known.document),
            label: K::label(&known.document).to_owned(),
            from_file: known.from_file,
            text: K::text(&known.document).to_owned(),
        });
        let new: Vec<NewRevision> = new.collect();
        let (store, now) = (&self.inner.parts.store, self.inner.parts.clock.now());
        let added = store
            .add_revisions(collection::<K>(tenant), &new, now)
            .await?;
        for (document, row) in new.iter().zip(&added) {
            if let Some(oldest) = row.number.checked_sub(KEPT).filter(|oldest| *oldest > 0) {
                self.delete_unused(tenant, &document.id, oldest).await?;
            }
        }
        Ok(())
    }

    /// Deletes the revisions of a document up to a number, except revisions that runs use.
    pub(super) async fn delete_unused(
        &self,
        tenant: Tenant,
        id: &str,
        up_to: u64,
    ) -> Result<(), StoreError> {
        if !K::REVISIONS {
            return Ok(());
        }
        let used: Vec<Vec<u64>> = match &self.inner.parts.runs {
            None => Vec::new(),
            Some(runs) => {
                let kind = &self.inner.kind;
                let used = runs.metas_of_open_runs(|meta| Some(kind.used(id, meta)));
                match used.await {
                    Ok(used) => used,
                    Err(failure) => {
                        let status = failure.into_status();
                        let error = status.message();
                        tracing::warn!(id, error, "revisions are kept, as their use is not known");
                        return Ok(());
                    }
                }
            }
        };
        let store = &self.inner.parts.store;
        let collection = collection::<K>(tenant);
        store
            .delete_revisions(collection, id, up_to, &used.concat())
            .await
    }
}

/// Remarks that an earlier revision with other bytes has the same label (rule G102).
pub fn same_version(row: &RevisionRow) -> Option<LoadDiagnostic> {
    (row.same_version_as > 0).then(|| LoadDiagnostic {
        severity: LoadSeverity::Warning,
        path: "/version".to_owned(),
        code: "same_version",
        message: format!(
            "revision {} states `{}` too and differs; state another version for each change",
            row.same_version_as, row.label
        ),
    })
}
