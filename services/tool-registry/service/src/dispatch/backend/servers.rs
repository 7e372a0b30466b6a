//! The registered servers of all tenants.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, RwLock},
};

use core_types::{PerTenant, Tenant};
use documents::DocumentStore;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::OnceCell;
use tool_domain::tool::Tool;

use super::{AllowedHosts, Backend, channel_to};
use crate::store::{StoreError, backends_of};

/// The most tenants whose servers are in memory without being in use.
const MAX_TENANTS: usize = 256;

/// The registered servers of all tenants. Clone, cheap.
#[derive(Clone, Debug)]
pub struct Backends {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    tenants: PerTenant<ServersOfTenant>,
    store: Arc<dyn DocumentStore>,
    allowed: AllowedHosts,
}

#[derive(Debug, Default)]
struct ServersOfTenant {
    by_name: OnceCell<RwLock<ByName>>,
}

type ByName = BTreeMap<String, Arc<Backend>>;

/// The own servers of a tenant.
#[derive(Debug)]
pub struct Servers {
    of_tenant: Arc<ServersOfTenant>,
}

/// A server that a tenant can use.
#[derive(Clone, Debug)]
pub struct Found {
    /// The server.
    pub backend: Arc<Backend>,
    /// Whether it belongs to the tenant `system`, and is used by another.
    pub is_shared: bool,
}

/// A server as it is stored under its name.
#[derive(Serialize, Deserialize)]
struct StoredBackend {
    endpoint: String,
    /// A serialised `FileDescriptorSet` of everything it offers, in hexadecimal digits.
    descriptors: String,
    /// The principal as which it calls Tavern.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    principal: String,
}

impl Backend {
    /// Returns the text under which the server is stored.
    pub fn to_text(&self) -> String {
        let stored = StoredBackend {
            endpoint: self.endpoint.clone(),
            descriptors: hex::encode(&self.descriptors),
            principal: self.principal.clone(),
        };
        json!(stored).to_string()
    }
}

impl Backends {
    /// Takes the store of the servers, and dials these hosts only.
    pub fn new(store: Arc<dyn DocumentStore>, allowed: AllowedHosts) -> Self {
        let inner = Inner {
            tenants: PerTenant::new(MAX_TENANTS),
            store,
            allowed,
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    pub(super) fn allowed(&self) -> &AllowedHosts {
        &self.inner.allowed
    }

    /// Returns the own servers of a tenant, loaded if they are not in memory.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn of(&self, tenant: Tenant) -> Result<Servers, StoreError> {
        let of_tenant = self.inner.tenants.of(tenant);
        let load = || async { self.load(tenant).await.map(RwLock::new) };
        of_tenant.by_name.get_or_try_init(load).await?;
        Ok(Servers { of_tenant })
    }

    /// Drops the servers of a tenant from the memory.
    pub fn forget(&self, tenant: Tenant) {
        self.inner.tenants.forget(tenant);
    }

    /// Returns a server of a tenant, or a shared one.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn get(&self, tenant: Tenant, name: &str) -> Result<Option<Found>, StoreError> {
        let found = |is_shared| move |backend| Found { backend, is_shared };
        let own = self.of(tenant).await?.get(name);
        if own.is_some() || tenant == Tenant::SYSTEM {
            return Ok(own.map(found(false)));
        }
        let shared = self.of(Tenant::SYSTEM).await?.get(name);
        Ok(shared.map(found(true)))
    }

    /// Returns the server that a tool of a tenant names. A shared tool names a server of its own tenant.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn of_tool(
        &self,
        tenant: Tenant,
        tool: &Tool,
        name: &str,
    ) -> Result<Option<Arc<Backend>>, StoreError> {
        let tenant = match tool.is_shared() {
            true => Tenant::SYSTEM,
            false => tenant,
        };
        let found = self.get(tenant, name).await?;
        Ok(found.map(|found| found.backend))
    }

    /// Returns every server of a tenant by name, and the shared ones of other names.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn all(&self, tenant: Tenant) -> Result<Vec<Found>, StoreError> {
        let mut all = BTreeMap::new();
        if tenant != Tenant::SYSTEM {
            let shared = self.of(Tenant::SYSTEM).await?.by_name();
            all.extend(
                shared
                    .into_iter()
                    .map(|(name, backend)| (name, (backend, true))),
            );
        }
        let own = self.of(tenant).await?.by_name();
        all.extend(
            own.into_iter()
                .map(|(name, backend)| (name, (backend, false))),
        );
        let all = all.into_values();
        let all = all.map(|(backend, is_shared)| Found { backend, is_shared });
        Ok(all.collect())
    }

    /// Loads the servers of a tenant. A broken one is logged and left out; it stays in the store.
    async fn load(&self, tenant: Tenant) -> Result<ByName, StoreError> {
        let Inner { store, allowed, .. } = &*self.inner;
        let mut by_name = ByName::new();
        let stored = store.page(backends_of(tenant), "", usize::MAX, usize::MAX);
        for row in stored.await? {
            let damaged = |_| StoreError::Damaged {
                table: "document",
                column: "text",
            };
            let stored: StoredBackend = serde_json::from_str(&row.text).map_err(damaged)?;
            // Digits that are none make descriptors that are none.
            let descriptors = hex::decode(&stored.descriptors).unwrap_or_default();
            let known = channel_to(&stored.endpoint, tenant, allowed).and_then(|channel| {
                Backend::known(&row.id, &stored.endpoint, descriptors, channel)
            });
            match known {
                Ok(backend) => {
                    let backend = backend.calling_as(&stored.principal);
                    by_name.insert(row.id, Arc::new(backend));
                }
                Err(error) => {
                    tracing::error!(backend = row.id, %tenant, %error, "a stored gRPC server is left out");
                }
            }
        }
        Ok(by_name)
    }
}

impl Servers {
    /// Adds a server or replaces the one of the same name.
    pub fn put(&self, backend: Arc<Backend>) {
        self.change(|by_name| drop(by_name.insert(backend.name.clone(), backend)));
    }

    /// Removes a server; calls that are in flight continue.
    pub fn remove(&self, name: &str) {
        self.change(|by_name| drop(by_name.remove(name)));
    }

    /// Returns a server.
    pub fn get(&self, name: &str) -> Option<Arc<Backend>> {
        self.read(|by_name| by_name.get(name).cloned()).flatten()
    }

    fn by_name(&self) -> ByName {
        self.read(ByName::clone).unwrap_or_default()
    }

    /// Reads the servers, which are loaded; never held across an await.
    fn read<T>(&self, read: impl FnOnce(&ByName) -> T) -> Option<T> {
        let by_name = self.of_tenant.by_name.get()?;
        Some(read(
            &by_name.read().unwrap_or_else(PoisonError::into_inner),
        ))
    }

    fn change(&self, change: impl FnOnce(&mut ByName)) {
        if let Some(by_name) = self.of_tenant.by_name.get() {
            change(&mut by_name.write().unwrap_or_else(PoisonError::into_inner));
        }
    }
}
