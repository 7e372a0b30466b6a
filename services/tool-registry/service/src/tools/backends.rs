//! Adding and deleting gRPC servers.

use std::sync::Arc;

use core_types::Tenant;

use super::{Change, ChangeError, Tools, change::is_repeated};
use crate::{
    dispatch::backend::{Backend, BackendError, Found},
    store::{StoreError, backends_of},
};

/// A backend that was added, now or before.
#[derive(Clone, Debug)]
pub struct PutBackend {
    /// The backend; nothing if the request was repeated and the backend was deleted meanwhile.
    pub backend: Option<Arc<Backend>>,
    /// Whether the request was repeated.
    pub replayed: bool,
}

/// The reason for which the methods of a registered server are not known.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UnreadBackend {
    /// It is not registered.
    #[error("it is not registered; add it by PutBackend")]
    Unknown,
    /// It cannot be read.
    #[error(transparent)]
    Unreadable(#[from] BackendError),
    /// The store failed.
    #[error("the backends cannot be read: {0}")]
    Store(#[from] StoreError),
}

impl Tools {
    /// Adds a gRPC server of a tenant, or replaces the one of the same name.
    ///
    /// # Errors
    /// [`ChangeError`] is the reason; the catalogue is unchanged then.
    pub async fn put_backend(
        &self,
        tenant: Tenant,
        (name, endpoint, principal): (&str, &str, &str),
        change: &Change,
    ) -> Result<PutBackend, ChangeError> {
        let request = change.request("PutBackend");
        let (servers, view) = (
            self.shared.backends.of(tenant).await?,
            self.view(tenant).await?,
        );
        let repeated = || PutBackend {
            backend: servers.get(name),
            replayed: true,
        };
        if self.is_repeated(tenant, request).await? {
            return Ok(repeated());
        }
        let backend = self
            .shared
            .backends
            .discover(tenant, name, endpoint)
            .await?
            .calling_as(principal);
        let _changing = view.of_tenant.changing.lock().await;
        // The same request may have been carried out while the server was asked.
        if self.is_repeated(tenant, request).await? {
            return Ok(repeated());
        }
        let present = servers.get(name);
        let stored = present.map_or_else(String::new, |present| present.etag.clone());
        if stored != backend.etag {
            change.check_etag(&stored)?;
        }
        let backend = Arc::new(backend);
        if !change.validate_only {
            let text = backend.to_text();
            let (store, now) = (&self.shared.store, self.shared.clock.now());
            let stored = store.replace(backends_of(tenant), name, &text, request, now);
            is_repeated(&stored.await?)?;
            servers.put(Arc::clone(&backend));
        }
        Ok(PutBackend {
            backend: Some(backend),
            replayed: false,
        })
    }

    /// Deletes a gRPC server of a tenant. Returns whether the request was repeated.
    ///
    /// # Errors
    /// [`ChangeError`] is the reason; the catalogue is unchanged then.
    pub async fn delete_backend(
        &self,
        tenant: Tenant,
        name: &str,
        change: &Change,
    ) -> Result<bool, ChangeError> {
        let request = change.request("DeleteBackend");
        let (servers, view) = (
            self.shared.backends.of(tenant).await?,
            self.view(tenant).await?,
        );
        let _changing = view.of_tenant.changing.lock().await;
        if self.is_repeated(tenant, request).await? {
            return Ok(true);
        }
        if let Some(present) = servers.get(name) {
            change.check_etag(&present.etag)?;
        }
        // A server that no longer works is in the store only.
        let (store, now) = (&self.shared.store, self.shared.clock.now());
        if !store
            .delete(backends_of(tenant), name, request, now)
            .await?
        {
            return Err(match self.backend(tenant, name).await? {
                Some(_) => ChangeError::IsShared,
                None => ChangeError::NotFound,
            });
        }
        servers.remove(name);
        Ok(false)
    }

    /// Returns a gRPC server of a tenant, or a shared one.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn backend(&self, tenant: Tenant, name: &str) -> Result<Option<Found>, StoreError> {
        self.shared.backends.get(tenant, name).await
    }

    /// Returns a gRPC server that the operator of the installation registered.
    ///
    /// # Errors
    /// The store's failure.
    pub(crate) async fn backend_of_installation(
        &self,
        name: &str,
    ) -> Result<Option<Arc<Backend>>, StoreError> {
        self.shared.backends.of_installation(name).await
    }

    /// Reads the methods of a gRPC server that the operator of the installation registered by reflection, as they are
    /// now.
    ///
    /// # Errors
    /// The server is not registered, or cannot be read.
    pub(crate) async fn read_backend_of_installation(
        &self,
        name: &str,
    ) -> Result<Backend, UnreadBackend> {
        let found = self.backend_of_installation(name).await?;
        let backend = found.ok_or(UnreadBackend::Unknown)?;
        let read = self
            .shared
            .backends
            .discover(Tenant::DEFAULT, name, &backend.endpoint);
        Ok(read.await?)
    }

    /// Returns every gRPC server of a tenant by name, and the shared ones of other names.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn backends(&self, tenant: Tenant) -> Result<Vec<Found>, StoreError> {
        self.shared.backends.all(tenant).await
    }
}
