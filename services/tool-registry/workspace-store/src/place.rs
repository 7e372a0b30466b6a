//! The names of workspaces.

use core_types::{ConversationId, Tenant};
use grpc_kit::CallContext;

/// The directory of the directories of tenants other than the default one.
pub(crate) const TENANTS: &str = ".tenants";
/// The prefix of the directories of single calls.
pub(crate) const SINGLE_CALL: &str = ".call-";
/// The prefix of the directories that plugins keep.
pub(crate) const PLUGIN: &str = ".plugin-";
/// The beginning of the names of workspaces at a server.
pub(crate) const STORED: &str = "workspace/";

/// The name of a workspace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) tenant: Tenant,
    name: String,
}

impl Place {
    pub(crate) fn new(tenant: Tenant, name: String) -> Self {
        Self { tenant, name }
    }

    pub(crate) fn of_conversation(context: &CallContext, conversation: &ConversationId) -> Self {
        Self::new(context.tenant(), conversation.directory_name())
    }

    /// The name of a plugin is the name of a directory too.
    pub(crate) fn of_plugin(tenant: Tenant, plugin: &str) -> Self {
        Self::new(tenant, format!("{PLUGIN}{plugin}"))
    }

    /// Parses a name at a server.
    pub(crate) fn of_stored(tenant: Tenant, stored: &str) -> Option<Self> {
        let name = stored.strip_prefix(STORED)?;
        Some(Self::new(tenant, name.to_owned()))
    }

    /// Returns the path of the directory beneath the root.
    pub(crate) fn path(&self) -> String {
        match self.tenant.is_default() {
            true => self.name.clone(),
            false => format!("{TENANTS}/{}/{}", self.tenant, self.name),
        }
    }

    /// Returns the name at a server.
    pub(crate) fn stored(&self) -> String {
        format!("{STORED}{}", self.name)
    }
}
