//! The things of a change as they are now.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use contracts::tavern::registry::v1::AuditSubject;
use core_types::{Principal, Tenant};
use documents::DocumentStore;
use tool_domain::identity::Account;

use super::names::Hmacs;
use crate::{
    identities::Identities,
    store::{StoreError, backends_of, tools_of},
};

/// The things that a change is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// Principals, by their names in the tenant and by the ids of their keys.
    Principals {
        tenant: Tenant,
        names: Vec<String>,
        key_ids: Vec<String>,
    },
    /// A tenant. Its name is as the request has it.
    Tenant(String),
    /// A tool.
    Tool { tenant: Tenant, id: String },
    /// A gRPC server.
    Backend { tenant: Tenant, name: String },
    /// The things of a method of which this does not know where they are stored.
    Other { tenant: Tenant, names: Vec<String> },
}

/// Reads things, and makes what records have of them. Clone, cheap.
#[derive(Clone)]
pub(crate) struct Things {
    identities: Identities,
    documents: Arc<dyn DocumentStore>,
    hmacs: Hmacs,
}

impl Subject {
    /// Returns the tenant whose things they are.
    pub(crate) fn tenant(&self) -> &str {
        match self {
            Self::Principals { tenant, .. }
            | Self::Tool { tenant, .. }
            | Self::Backend { tenant, .. }
            | Self::Other { tenant, .. } => tenant.as_str(),
            // The installation's, as its methods are.
            Self::Tenant(_) => "system",
        }
    }

    /// Returns the text of things that change one after the other.
    pub(super) fn lock(&self) -> String {
        match self {
            Self::Principals { tenant, .. } => format!("principals/{tenant}"),
            Self::Tenant(name) => format!("tenant/{name}"),
            Self::Tool { tenant, id } => format!("tool/{tenant}/{id}"),
            Self::Backend { tenant, name } => format!("backend/{tenant}/{name}"),
            Self::Other { tenant, .. } => format!("other/{tenant}"),
        }
    }
}

impl Things {
    pub(super) fn new(
        identities: Identities,
        documents: Arc<dyn DocumentStore>,
        hmacs: Hmacs,
    ) -> Self {
        Self {
            identities,
            documents,
            hmacs,
        }
    }

    pub(crate) fn hmacs(&self) -> &Hmacs {
        &self.hmacs
    }

    /// Returns the subject as records have it: the owners of keys are named.
    pub(super) fn recorded(&self, subject: &Subject) -> AuditSubject {
        let (kind, names, key_ids) = match subject {
            Subject::Principals { names, key_ids, .. } => {
                let owners = self.accounts(subject);
                let owners = owners.iter().map(|owner| owner.name.name().to_owned());
                let names: BTreeSet<String> = names.iter().cloned().chain(owners).collect();
                ("principal", names.into_iter().collect(), key_ids.clone())
            }
            Subject::Tenant(name) => ("tenant", vec![name.clone()], Vec::new()),
            Subject::Tool { id, .. } => ("tool", vec![id.clone()], Vec::new()),
            Subject::Backend { name, .. } => ("backend", vec![name.clone()], Vec::new()),
            Subject::Other { names, .. } => ("other", names.clone(), Vec::new()),
        };
        let name = |text: &String| match subject {
            Subject::Principals { .. } => self.hmacs.principal(text),
            _ => self.hmacs.name(text),
        };
        AuditSubject {
            kind: kind.to_owned(),
            tenant: subject.tenant().to_owned(),
            names: names.iter().map(name).collect(),
            key_ids: key_ids.iter().map(|id| self.hmacs.name(id)).collect(),
        }
    }

    /// Reads the things of a record back; `None` where it has not their names.
    pub(super) fn subject(recorded: &AuditSubject) -> Option<Subject> {
        let tenant = Tenant::new(&recorded.tenant).ok()?;
        let first = recorded.names.first().cloned().unwrap_or_default();
        let mut names = recorded.names.iter().chain(&recorded.key_ids);
        if names.any(|name| name.starts_with("hmac:")) {
            return None;
        }
        match recorded.kind.as_str() {
            "principal" => Some(Subject::Principals {
                tenant,
                names: recorded.names.clone(),
                key_ids: recorded.key_ids.clone(),
            }),
            "tenant" => Some(Subject::Tenant(first)),
            "tool" => Some(Subject::Tool { tenant, id: first }),
            "backend" => Some(Subject::Backend {
                tenant,
                name: first,
            }),
            _ => None,
        }
    }

    /// Returns the HMAC of things as they are stored; empty where they are not known.
    ///
    /// # Errors
    /// The store does not work.
    pub(super) async fn state(&self, subject: &Subject) -> Result<String, StoreError> {
        let text = match subject {
            Subject::Principals { tenant, names, .. } => {
                let accounts = self.accounts(subject);
                let accounts = accounts.iter().map(|account| as_text(&**account));
                let named = names
                    .iter()
                    .filter_map(|name| Principal::of(*tenant, name).ok());
                let blocks = named.filter_map(|name| self.identities.blocked_since(&name));
                let blocks = blocks.map(|since| format!("blocked {}", since.unix_nanos()));
                accounts.chain(blocks).collect::<Vec<_>>().join("\n")
            }
            Subject::Tenant(name) => {
                let records = self.identities.tenants().records();
                let found = Tenant::new(name).ok();
                let found = found.and_then(|name| records.get(name).ok().cloned());
                found.as_ref().map(as_text).unwrap_or_default()
            }
            Subject::Tool { tenant, id } => self.document(tools_of(*tenant), id).await?,
            Subject::Backend { tenant, name } => self.document(backends_of(*tenant), name).await?,
            Subject::Other { .. } => return Ok(String::new()),
        };
        Ok(self.hmacs.of(text.as_bytes()))
    }

    async fn document(
        &self,
        collection: documents::Collection,
        id: &str,
    ) -> Result<String, StoreError> {
        let found = self.documents.get(collection, id).await?;
        Ok(found.map_or_else(String::new, |found| {
            format!("{}\n{}", found.version, found.text)
        }))
    }

    /// Returns the accounts that a subject names and those that have a key that it names, by name.
    fn accounts(&self, subject: &Subject) -> Vec<Arc<Account>> {
        let Subject::Principals {
            tenant,
            names,
            key_ids,
        } = subject
        else {
            return Vec::new();
        };
        let names: HashSet<Principal> = names
            .iter()
            .filter_map(|name| Principal::of(*tenant, name).ok())
            .collect();
        let accounts = self.identities.list(*tenant).into_iter();
        let is_meant = |account: &Arc<Account>| {
            names.contains(&account.name)
                || account.keys.iter().any(|key| key_ids.contains(&key.id))
        };
        accounts.filter(is_meant).collect()
    }
}

fn as_text(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("what a store writes as JSON can be written")
}
