//! Making the next revision from the present one.

use std::sync::Arc;

use call_outcome::Violation;
use plugin_package::Plugin;
use tool_domain::{
    catalogue::{AddError, Catalogue},
    permissions::Permission,
    tool::Origin,
};

use crate::tools::{ActivePlugin, Revision};

/// The most removed tools that are remembered.
const MAX_REMOVED: usize = 4_096;

/// Tools of a plugin that are left out, or that keep it from being installed, with all reasons.
pub(super) type LeftOut = Vec<Violation>;

/// Returns the revision with a plugin, in the place of an earlier one of its name, and the tools that it cannot bring.
pub(super) fn with(revision: Revision, mut plugin: ActivePlugin) -> (Revision, LeftOut) {
    let mut left_out = without_taken_overrides(&revision, &mut plugin);
    let mut next = match revision.plugins.contains_key(plugin.name()) {
        true => without_tools(&revision, plugin.name()),
        false => revision,
    };
    let origin = Origin::Plugin(plugin.name().to_owned());
    let catalogue = Arc::make_mut(&mut next.catalogue);
    for tool in &plugin.plugin.tools {
        let id = tool.id.as_str();
        match catalogue.add(Arc::clone(tool), origin.clone()) {
            Ok(_) => drop(next.removed.remove(id)),
            Err(reason) => left_out.extend(of_tool(id, reason)),
        }
    }
    next.plugins
        .insert(plugin.name().to_owned(), Arc::new(plugin));
    (next, left_out)
}

/// Takes the permissions for overrides of services from a plugin that another one in force overrides already.
fn without_taken_overrides(revision: &Revision, plugin: &mut ActivePlugin) -> LeftOut {
    let name = plugin.name().to_owned();
    let others = revision
        .plugins
        .values()
        .filter(|other| other.name() != name);
    let others: Vec<_> = others.collect();
    let mut left_out = Vec::new();
    for stand_in in &plugin.plugin.manifest.overrides {
        let service = stand_in.service.clone();
        let line = Permission::ServiceOverride { service }.to_string();
        let owner = others
            .iter()
            .find(|other| other.permissions.contains(&line));
        if let Some(owner) = owner {
            let message = format!(
                "the override of {} is left out, because the plugin {} has it; uninstall that one first",
                stand_in.service,
                owner.name()
            );
            left_out.push(Violation::new("", "override_taken", message));
            plugin.permissions.retain(|permission| *permission != line);
        }
    }
    left_out
}

/// Returns the reasons for which tools of a plugin in force are left out.
pub(super) fn left_out(revision: &Revision, plugin: &Plugin) -> LeftOut {
    let origin = Origin::Plugin(plugin.manifest.name.to_string());
    let is_mine = |id: &str| {
        let tool = revision.catalogue.get(id);
        tool.is_some_and(|tool| *tool.origin() == origin)
    };
    let missing = plugin
        .tools
        .iter()
        .filter(|tool| !is_mine(tool.id.as_str()));
    let reasons = missing.filter_map(|tool| {
        let added = revision.catalogue.with(Arc::clone(tool), origin.clone());
        Some(of_tool(tool.id.as_str(), added.err()?))
    });
    reasons.flatten().collect()
}

/// Returns the revision without a plugin. Its tools are remembered as removed.
pub(super) fn without(revision: &Revision, name: &str) -> Revision {
    let mut next = without_tools(revision, name);
    next.plugins.remove(name);
    next
}

fn without_tools(revision: &Revision, name: &str) -> Revision {
    let origin = Origin::Plugin(name.to_owned());
    let mut next = revision.clone();
    let mine = revision
        .catalogue
        .tools()
        .filter(|tool| *tool.origin() == origin);
    next.removed
        .extend(mine.map(|tool| (tool.id().to_owned(), name.to_owned())));
    while next.removed.len() > MAX_REMOVED {
        next.removed.pop_first();
    }
    let catalogue: Catalogue = revision.catalogue.without_origin(&origin);
    next.catalogue = Arc::new(catalogue);
    next
}

fn of_tool(tool: &str, reason: AddError) -> LeftOut {
    match reason {
        AddError::Taken(origin) => {
            let message =
                format!("the tool '{tool}' is left out, because {origin} brings one of this id");
            vec![Violation::new("", "id_taken", message)]
        }
        AddError::Invalid(violations) => {
            let named = violations.into_iter().map(|mut violation| {
                violation.message = format!("the tool '{tool}' is left out: {}", violation.message);
                violation
            });
            named.collect()
        }
    }
}
