//! The reasons for which a person must approve a change (rules R105 and R109).

use super::input::PluginVersion;
use crate::{
    definition::{Definition, Flags, Implementation},
    permissions::PermissionChange,
};

/// Returns the reasons for which a change does not take force by itself, each as a sentence; none if
/// it may: it asks for no permission that is not in force, and weakens no declared effect of a tool.
pub fn reasons(in_force: Option<&PluginVersion<'_>>, new: &PluginVersion<'_>) -> Vec<String> {
    let before = in_force.map_or(&[][..], |version| &version.manifest.permissions);
    let change = PermissionChange::between(before, &new.manifest.permissions);
    let asked = change
        .added
        .iter()
        .map(|request| format!("It asks for the permission {}.", request.permission));
    let mut reasons: Vec<String> = asked.collect();
    let present = in_force.map_or(&[][..], |version| &version.manifest.overrides);
    for stand_in in &new.manifest.overrides {
        let changed = present
            .iter()
            .find(|other| other.service == stand_in.service);
        if changed.is_some_and(|other| other != stand_in) {
            let (service, backend) = (&stand_in.service, &stand_in.backend);
            reasons.push(format!("It replaces {service} by the backend {backend}."));
        }
    }
    for tool in new.tools.iter().filter(|tool| !is_script(tool)) {
        let mut others = in_force.iter().flat_map(|version| version.tools);
        let Some(other) = others.find(|other| other.id == tool.id) else {
            continue;
        };
        for effect in weakened(other.flags, tool.flags) {
            reasons.push(format!("The tool {} {effect}.", tool.id));
        }
    }
    reasons
}

/// Whether a tool is a script. A script without permissions has no effects, so that its declarations hold at once
/// (rule R012).
fn is_script(tool: &Definition) -> bool {
    matches!(tool.implementation, Implementation::Script(_))
}

/// Returns the declarations of effects by which later calls are checked less than before.
fn weakened(before: Flags, after: Flags) -> impl Iterator<Item = &'static str> {
    let weaker = [
        (
            after.read_only && !before.read_only,
            "now declares that it changes nothing",
        ),
        (
            after.idempotent && !before.idempotent,
            "now declares that repeating a call has no further effect",
        ),
        (
            before.destructive && !after.destructive,
            "does not declare any more that it destroys data",
        ),
        (
            after.parallel_safe && !before.parallel_safe,
            "now declares that its calls may run at once",
        ),
        (
            before.strict && !after.strict,
            "does not require any more that calls are written exactly",
        ),
    ];
    weaker
        .into_iter()
        .filter_map(|(is_weaker, sentence)| is_weaker.then_some(sentence))
}
