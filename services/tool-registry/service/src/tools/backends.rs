//! Adding and deleting gRPC servers.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Change, ChangeError, Tools, change::is_repeated};
use crate::{
    dispatch::backend::Backend,
    store::{BACKENDS, StoreError},
};

/// A gRPC server as it is stored under its name.
#[derive(Serialize, Deserialize)]
struct StoredBackend {
    endpoint: String,
    /// A serialised `FileDescriptorSet` of everything it offers, in hexadecimal digits.
    descriptors: String,
}

/// A backend that was added, now or before.
#[derive(Clone, Debug)]
pub struct PutBackend {
    /// The backend; nothing if the request was repeated and the backend was deleted meanwhile.
    pub backend: Option<Arc<Backend>>,
    /// Whether the request was repeated.
    pub replayed: bool,
}

impl Tools {
    /// Adds a gRPC server, or replaces the one of the same name.
    ///
    /// # Errors
    /// [`ChangeError`] is the reason; the catalogue is unchanged then.
    pub async fn put_backend(
        &self,
        name: &str,
        endpoint: &str,
        change: &Change,
    ) -> Result<PutBackend, ChangeError> {
        let request = change.request("PutBackend");
        if self.is_repeated(request).await? {
            return Ok(self.repeated_backend(name));
        }
        let backend = self.shared.backends.discover(name, endpoint).await?;
        let _changing = self.shared.changing.lock().await;
        // The same request may have been carried out while the server was asked.
        if self.is_repeated(request).await? {
            return Ok(self.repeated_backend(name));
        }
        let present = self.shared.backends.get(name);
        let stored = present.map_or_else(String::new, |present| present.etag.clone());
        if stored != backend.etag {
            change.check_etag(&stored)?;
        }
        let backend = Arc::new(backend);
        if !change.validate_only {
            let text = json!(StoredBackend {
                endpoint: backend.endpoint.clone(),
                descriptors: hex::encode(&backend.descriptors),
            })
            .to_string();
            let (store, now) = (&self.shared.store, self.shared.clock.now());
            let stored = store.replace(BACKENDS, name, &text, request, now);
            is_repeated(&stored.await?)?;
            self.shared.backends.put(Arc::clone(&backend));
        }
        Ok(PutBackend {
            backend: Some(backend),
            replayed: false,
        })
    }

    /// Deletes a gRPC server. Returns whether the request was repeated.
    ///
    /// # Errors
    /// [`ChangeError`] is the reason; the catalogue is unchanged then.
    pub async fn delete_backend(&self, name: &str, change: &Change) -> Result<bool, ChangeError> {
        let request = change.request("DeleteBackend");
        let _changing = self.shared.changing.lock().await;
        if self.is_repeated(request).await? {
            return Ok(true);
        }
        if let Some(present) = self.shared.backends.get(name) {
            change.check_etag(&present.etag)?;
        }
        // One that no longer works is in the store only.
        let (store, now) = (&self.shared.store, self.shared.clock.now());
        if !store.delete(BACKENDS, name, request, now).await? {
            return Err(ChangeError::NotFound);
        }
        self.shared.backends.remove(name);
        Ok(false)
    }

    /// Returns a gRPC server.
    pub fn backend(&self, name: &str) -> Option<Arc<Backend>> {
        self.shared.backends.get(name)
    }

    /// Returns every gRPC server by name.
    pub fn backends(&self) -> Vec<Arc<Backend>> {
        self.shared.backends.all()
    }

    /// Takes the gRPC servers that were added before the last restart. Broken ones are logged and
    /// left out; it stays in the store.
    pub(super) async fn restore_backends(&self) -> Result<(), StoreError> {
        for row in self
            .shared
            .store
            .page(BACKENDS, "", usize::MAX, usize::MAX)
            .await?
        {
            let damaged = |_| StoreError::Damaged {
                table: "document",
                column: "text",
            };
            let stored: StoredBackend = serde_json::from_str(&row.text).map_err(damaged)?;
            // Digits that are none make descriptors that are none.
            let descriptors = hex::decode(&stored.descriptors).unwrap_or_default();
            let backends = &self.shared.backends;
            let known = backends.known(&row.id, &stored.endpoint, descriptors);
            match known {
                Ok(backend) => self.shared.backends.put(Arc::new(backend)),
                Err(error) => {
                    tracing::error!(backend = row.id, error = %error, "a stored gRPC server is left out");
                }
            }
        }
        Ok(())
    }

    fn repeated_backend(&self, name: &str) -> PutBackend {
        PutBackend {
            backend: self.shared.backends.get(name),
            replayed: true,
        }
    }
}
