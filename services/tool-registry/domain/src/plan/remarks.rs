//! The findings of a plan: remarks, and violations that stop it.

use call_outcome::Violation;
use semver::Version;

use super::{document::PlanRemark, input::PlanInput, usage::hosts_of};
use crate::{
    diagnostic::Diagnostic,
    options::{OptionDeclaration, OptionValues},
    permissions::{Permission, PermissionRequest},
};

impl From<&Diagnostic> for PlanRemark {
    fn from(diagnostic: &Diagnostic) -> Self {
        Self {
            code: diagnostic.code.clone(),
            pointer: diagnostic.path.clone(),
            message: diagnostic.message.clone(),
        }
    }
}

impl From<Violation> for PlanRemark {
    fn from(violation: Violation) -> Self {
        Self {
            code: violation.code.into_owned(),
            pointer: violation.pointer,
            message: violation.message,
        }
    }
}

fn remark(pointer: &str, code: &str, message: String) -> PlanRemark {
    PlanRemark {
        code: code.to_owned(),
        pointer: pointer.to_owned(),
        message,
    }
}

/// Returns the findings that do not stop the plan.
pub(super) fn remarks(input: &PlanInput<'_>) -> Vec<PlanRemark> {
    let manifest = input.new.manifest;
    // Permissions that cannot be granted are violations of the plan, each by its name.
    let refused = |found: &&Diagnostic| found.path != "/permissions";
    let of_manifest = manifest.diagnostics.iter().filter(refused);
    let of_tools = input.new.tools.iter().flat_map(|tool| &tool.diagnostics);
    let mut found: Vec<PlanRemark> = of_manifest.chain(of_tools).map(PlanRemark::from).collect();
    found.extend(version(input));
    for request in &manifest.permissions {
        if let Permission::ToolCall { tool_id } = &request.permission
            && !input.effects.contains_key(tool_id)
        {
            let message =
                format!("there is no tool '{tool_id}' at present; its effects are not known");
            found.push(remark(&request.pointer, "tool_unknown", message));
        }
    }
    found.extend(without_nodes(input));
    let (_, wrong) = OptionValues::carried_over(&manifest.options, input.option_values);
    found.extend(wrong.into_iter().map(|problem| {
        let message = format!("the present value is dropped: it {}", problem.message);
        remark(&problem.pointer, "option_dropped", message)
    }));
    if !manifest.is_strict {
        found.extend(beyond_permissions(input));
    }
    found
}

/// Returns a finding on each definition of nodes that cannot be loaded, with the file to write in its place, and one on a
/// directory without any.
fn without_nodes(input: &PlanInput<'_>) -> Vec<PlanRemark> {
    let Some(entry) = &input.new.manifest.nodes_entry else {
        return Vec::new();
    };
    let beneath = |path: &str| {
        let rest = path.strip_prefix(entry);
        rest.is_some_and(|rest| rest.starts_with('/'))
    };
    let paths = input.new.files.iter().map(|file| file.path.as_str());
    let paths: Vec<&str> = paths.filter(|path| beneath(path)).collect();
    let typed = paths.iter().filter_map(|path| {
        let stem = path.strip_suffix(".ts").or(path.strip_suffix(".tsx"))?;
        let message = format!(
            "node definitions in TypeScript cannot be loaded; write {stem}{} instead",
            node_file::EXTENSION
        );
        Some(remark(path, "not_loadable", message))
    });
    let mut found: Vec<PlanRemark> = typed.collect();
    let mut definitions = paths
        .iter()
        .filter(|path| path.ends_with(node_file::EXTENSION));
    if found.is_empty() && definitions.next().is_none() {
        let extension = node_file::EXTENSION;
        let message = format!("there is no *{extension} in '{entry}', so it brings no node type");
        found.push(remark("/nodes", "no_nodes", message));
    }
    found
}

/// Returns a finding on a version that is not above the version in force.
fn version(input: &PlanInput<'_>) -> Option<PlanRemark> {
    let in_force = input.in_force.as_ref()?;
    let (old, new) = (&in_force.manifest.version, &input.new.manifest.version);
    if in_force.package_digest == input.new.package_digest {
        let message = "the package is the one in force, so nothing changes".to_owned();
        return Some(remark("", "unchanged", message));
    }
    if old == new {
        let message = format!("the version '{new}' is the one in force, with other files");
        return Some(remark("/version", "version_repeated", message));
    }
    let lower = Version::parse(new).ok().zip(Version::parse(old).ok());
    lower.is_some_and(|(new, old)| new < old).then(|| {
        let message = format!("the version {new} is below {old}, which is in force");
        remark("/version", "version_lower", message)
    })
}

/// Returns the findings that stop the plan, conflicts aside.
pub(super) fn violations(input: &PlanInput<'_>) -> Vec<PlanRemark> {
    let manifest = input.new.manifest;
    let mut found: Vec<PlanRemark> = Vec::new();
    if let Some(range) = &manifest.requires_tavern
        && !range.matches(input.tavern)
    {
        let message = format!(
            "the plugin works with versions {range} of this service, which is {}; take another version \
             of the plugin",
            input.tavern
        );
        found.push(remark("/requires/tavern", "version_out_of_range", message));
    }
    if let Some(in_force) = &input.in_force
        && in_force.manifest.name != manifest.name
    {
        let message = format!(
            "the plugin is '{}' and cannot replace '{}'; plan it as a plugin of its own",
            manifest.name, in_force.manifest.name
        );
        found.push(remark("/name", "other_plugin", message));
    }
    let permissions = manifest.permissions.iter();
    let permissions = permissions.filter_map(PermissionRequest::refusal);
    let options = manifest
        .options
        .iter()
        .filter_map(OptionDeclaration::refusal);
    found.extend(permissions.chain(options).map(PlanRemark::from));
    if manifest.is_strict {
        found.extend(beyond_permissions(input));
    }
    found
}

/// Returns a finding on each host that a tool names and its plugin does not ask for.
fn beyond_permissions(input: &PlanInput<'_>) -> Vec<PlanRemark> {
    let asked = |host: &str| {
        let mut permissions = input.new.manifest.permissions.iter();
        permissions.any(|request| {
            matches!(&request.permission, Permission::Network { host: own, .. } if own == host)
        })
    };
    let named = input.new.tools.iter().flat_map(|tool| {
        let hosts = hosts_of(tool).unwrap_or_default().into_iter();
        hosts.map(move |host| (tool, host))
    });
    named
        .filter(|(_, host)| !asked(&host.to_ascii_lowercase()))
        .map(|(tool, host)| {
            let message = format!(
                "the tool {} names the host {host}, for which the plugin does not ask; add \
                 permissions.network with it, or remove it from the tool's securityContext",
                tool.id
            );
            remark("/permissions/network", "beyond_permissions", message)
        })
        .collect()
}
