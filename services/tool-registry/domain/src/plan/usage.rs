//! The permissions of a plan, each with the parts that use it.

use serde_json::Value;

use super::{
    document::{Change, PlannedPermission},
    input::{PlanInput, PluginVersion},
};
use crate::{
    definition::{Definition, Implementation},
    permissions::{Permission, PermissionChange, PermissionRequest},
};

/// Returns the permissions of both versions in the order of their kinds, removed ones last.
pub(super) fn permissions(input: &PlanInput<'_>) -> Vec<PlannedPermission> {
    let in_force = input.in_force.as_ref();
    let before = in_force.map_or(&[][..], |version| &version.manifest.permissions);
    let after = &input.new.manifest.permissions;
    let change = PermissionChange::between(before, after);
    let planned = |request: &PermissionRequest, used_by: Vec<String>, change: Change| {
        let effects = |id: &str| input.effects.get(id).copied();
        PlannedPermission {
            risk: request.permission.risk(effects),
            permission: request.permission.clone(),
            reason: request.reason.clone(),
            used_by,
            change,
        }
    };
    let asked = after.iter().map(|request| {
        let used_by = used_by(&request.permission, &input.new);
        match change.added.contains(request) {
            true => planned(request, used_by, Change::Added),
            false => planned(request, used_by, Change::Kept),
        }
    });
    let removed = change.removed.iter();
    let removed = removed.map(|request| planned(request, Vec::new(), Change::Removed));
    asked.chain(removed).collect()
}

/// Returns the parts of a version that use a permission, in the words of plans.
fn used_by(permission: &Permission, version: &PluginVersion<'_>) -> Vec<String> {
    let manifest = version.manifest;
    let frontend = &manifest.frontend;
    let scripts = || {
        let is_script =
            |tool: &&Definition| matches!(tool.implementation, Implementation::Script(_));
        version.definitions().filter(is_script)
    };
    let ids = |tools: Vec<&Definition>| tools.iter().map(|tool| tool.id.to_string()).collect();
    match permission {
        Permission::Network { host, .. } => ids(scripts()
            .filter(|tool| hosts_of(tool).is_none_or(|hosts| hosts.contains(host)))
            .collect()),
        Permission::Secret { .. }
        | Permission::ServiceRead { .. }
        | Permission::Workspace { .. } => ids(scripts().collect()),
        Permission::ServerHook { point } => {
            let hooks = manifest.hooks.iter().filter(|hook| hook.point == *point);
            hooks.map(|hook| format!("hook {}", hook.id)).collect()
        }
        Permission::ServiceOverride { service } => {
            let own = manifest
                .overrides
                .iter()
                .filter(|each| each.service == *service);
            own.map(|each| format!("override {}", each.service))
                .collect()
        }
        Permission::UiInject { outlet } => {
            let own = frontend
                .outlets
                .iter()
                .filter(|each| each.outlet == *outlet);
            own.map(|each| format!("outlet {}{}", each.component, shown_at(outlet)))
                .collect()
        }
        Permission::UiWrap { component } => {
            listed(frontend.wraps.iter().any(|each| each.target == *component))
        }
        Permission::UiOverride { component } => listed(
            frontend
                .overrides
                .iter()
                .any(|each| each.target == *component),
        ),
        Permission::Resources(_) | Permission::Packages { .. } => vec!["every script".to_owned()],
        Permission::ToolCall { .. }
        | Permission::Storage { .. }
        | Permission::ClientHook { .. } => Vec::new(),
    }
}

fn listed(is_used: bool) -> Vec<String> {
    let used = is_used.then(|| "listed, not applied on the page".to_owned());
    used.into_iter().collect()
}

/// Returns the outlet of the page that stands for an outlet of earlier front ends (rule R1001).
fn shown_at(outlet: &str) -> &'static str {
    match outlet {
        "node:header:right" => " (shown at node:panel)",
        _ => "",
    }
}

/// Returns the hosts to which a tool narrows the permissions of its plugin; none if it does not.
pub(super) fn hosts_of(tool: &Definition) -> Option<Vec<String>> {
    // Most tools name none, and need not be parsed.
    let written = tool.source.contains("allowHosts").then(|| tool.written())?;
    let hosts = written.pointer("/securityContext/networkAccess/allowHosts")?;
    let hosts = hosts.as_array()?.iter().filter_map(Value::as_str);
    Some(hosts.map(str::to_owned).collect())
}
