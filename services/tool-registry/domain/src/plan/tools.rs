//! The tools of both versions.

use super::{
    classes,
    document::{Change, PlannedTool},
    input::PluginVersion,
};
use crate::{definition::Definition, tool};

/// Compares the tools of both versions, in the order of the new one, removed ones last.
pub(super) fn changes(
    in_force: Option<&PluginVersion<'_>>,
    new: &PluginVersion<'_>,
) -> Vec<PlannedTool> {
    let mut tools: Vec<PlannedTool> = new
        .tools
        .iter()
        .map(|tool| {
            let before = in_force.and_then(|version| {
                let mut others = version.tools.iter();
                let other = others.find(|other| other.id == tool.id)?;
                Some((version, other))
            });
            let (change, classes) = match before {
                None => (Change::Added, Vec::new()),
                Some((version, other)) => {
                    let files_differ = version.package_digest != new.package_digest;
                    let classes = classes::of(other, tool, files_differ);
                    match classes.is_empty() {
                        true => (Change::Kept, classes),
                        false => (Change::Changed, classes),
                    }
                }
            };
            PlannedTool {
                classes,
                ..planned(new, tool, change)
            }
        })
        .collect();
    if let Some(version) = in_force {
        let is_gone = |tool: &&Definition| new.tools.iter().all(|other| other.id != tool.id);
        let gone = version.definitions().filter(is_gone);
        tools.extend(gone.map(|tool| planned(version, tool, Change::Removed)));
    }
    tools
}

fn planned(version: &PluginVersion<'_>, tool: &Definition, change: Change) -> PlannedTool {
    let digest = tool::etag_in_package(tool, &version.origin(), version.package_digest);
    PlannedTool {
        tool_id: tool.id.to_string(),
        digest: format!("sha256:{digest}"),
        effects: tool.flags.into(),
        change,
        classes: Vec::new(),
    }
}
