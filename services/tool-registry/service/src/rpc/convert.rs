//! The contents of the catalogue, as messages of the contract.

use contracts::tavern::{
    common::v1::{self as common},
    registry::v1::{self as registry, ImplementationType, ToolOrigin},
};
use tool_domain::{
    definition::Implementation,
    diagnostic::{Diagnostic, Severity},
    tool::{Origin, Tool},
};

use crate::{dispatch::backend::Found, plugins::PluginInfo};

/// Writes a tool.
pub fn tool_to_proto(tool: &Tool) -> registry::Tool {
    let definition = tool.definition();
    let flags = tool.flags();
    let implementation = match tool.implementation() {
        Implementation::Builtin(_) | Implementation::Backend { .. } | Implementation::Question => {
            ImplementationType::Service
        }
        Implementation::Script(_) => ImplementationType::Script,
        Implementation::Workflow { .. } => ImplementationType::Workflow,
        Implementation::Node { .. } => ImplementationType::Node,
        Implementation::Agent { .. } => ImplementationType::Agent,
    };
    let (origin, plugin) = match tool.origin() {
        Origin::Builtin => (ToolOrigin::Builtin, ""),
        Origin::Registered => (ToolOrigin::Registered, ""),
        Origin::Workflow => (ToolOrigin::Workflow, ""),
        Origin::Node => (ToolOrigin::Node, ""),
        Origin::Agent => (ToolOrigin::Agent, ""),
        Origin::Plugin(name) => (ToolOrigin::Plugin, name.as_str()),
    };
    registry::Tool {
        tool_id: tool.id().to_owned(),
        display_name: definition.display_name.clone(),
        description: definition.description.clone(),
        parameters_json: tool.parameters().to_string(),
        implementation: implementation.into(),
        origin: origin.into(),
        read_only: flags.read_only,
        idempotent: flags.idempotent,
        destructive: flags.destructive,
        parallel_safe: flags.parallel_safe,
        alias: tool.alias().to_owned(),
        etag: tool.etag().to_owned(),
        strict: flags.strict,
        diagnostics: definition
            .diagnostics
            .iter()
            .map(diagnostic_to_proto)
            .collect(),
        plugin: plugin.to_owned(),
        shared: tool.is_shared(),
    }
}

/// Converts a backend to its message.
pub fn backend_to_proto(found: &Found) -> registry::Backend {
    let backend = &found.backend;
    registry::Backend {
        name: backend.name.clone(),
        endpoint: backend.endpoint.clone(),
        methods: backend.methods(),
        etag: backend.etag.clone(),
        shared: found.is_shared,
        principal: backend.principal.clone(),
    }
}

/// Writes a plugin.
pub fn plugin_to_proto(plugin: &PluginInfo) -> registry::Plugin {
    registry::Plugin {
        directory: plugin.directory.clone(),
        name: plugin.name.clone(),
        display_name: plugin.display_name.clone(),
        version: plugin.version.clone(),
        description: plugin.description.clone(),
        loaded: plugin.loaded,
        tool_ids: plugin.tool_ids.clone(),
        diagnostics: plugin.diagnostics.iter().map(diagnostic_to_proto).collect(),
        package_digest: plugin.package_digest.clone(),
        earlier_digests: plugin.earlier_digests.clone(),
        permissions: plugin.permissions.clone(),
        has_changes: plugin.has_changes,
        disabled: plugin.disabled,
        missing_options: plugin.missing_options.clone(),
        disabled_tool_ids: plugin.disabled_tool_ids.clone(),
    }
}

pub(super) fn diagnostic_to_proto(found: &Diagnostic) -> common::LoadDiagnostic {
    let severity = match found.severity {
        Severity::Warning => common::Severity::Warning,
        Severity::Error => common::Severity::Error,
    };
    common::LoadDiagnostic {
        severity: severity.into(),
        path: found.path.clone(),
        code: found.code.clone(),
        message: found.message.chars().take(1_000).collect(),
    }
}
