//! The terms on which scripts of a plugin run.

use std::sync::Arc;

use contracts::tavern::sandbox::v1::Limits;
use plugin_package::PluginSet;
use tool_domain::permissions::{ResourceRequest, WorkspaceAccess};

/// The terms of a plugin as they were when its tool was looked up for a call: those of one revision, and of the choices
/// of the tenant.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScriptTerms {
    /// The digest of the package of the plugin; empty if no plugin brings the tool.
    pub package_digest: String,
    /// The options as JSON; `None` if the plugin declares none.
    pub options: Option<Arc<str>>,
    /// The approved limits, which take the place of the defaults.
    pub resources: Option<ResourceRequest>,
    /// The package set of scripts that name none.
    pub package_set: Option<Arc<PluginSet>>,
    /// The access to the files of the conversation.
    pub workspace: Option<WorkspaceAccess>,
    /// The most bytes that the plugin keeps.
    pub storage: Option<u64>,
}

impl ScriptTerms {
    /// Returns the limits that were approved; the others are the operator's defaults.
    pub(super) fn limits(&self) -> Option<Limits> {
        let seconds = |seconds: u64| prost_types::Duration {
            seconds: i64::try_from(seconds).unwrap_or(i64::MAX),
            nanos: 0,
        };
        self.resources.map(|resources| Limits {
            wall_time: resources.wall_seconds.map(seconds),
            cpu_time: resources.cpu_seconds.map(seconds),
            memory_bytes: resources.memory_bytes,
            processes: resources
                .processes
                .and_then(|count| u32::try_from(count).ok()),
            ..Limits::default()
        })
    }
}
