//! The permissions of plugins: which are asked for, and whether a person has to approve a change.

use call_outcome::Violation;
use plugin_package::{Plugin, PluginFiles, plan_alone};
use tool_domain::plan::approval;

use crate::tools::ActivePlugin;

/// The code of a finding about files that wait for a person.
pub(super) const APPROVAL_NEEDED: &str = "approval_needed";

/// Returns everything that a plugin asks for, as plans spell it.
pub(super) fn asked_for(plugin: &Plugin) -> Vec<String> {
    let requests = plugin.manifest.permissions.iter();
    requests
        .map(|request| request.permission.to_string())
        .collect()
}

/// Returns everything for which no plan of a plugin can be installed, besides the ids of its tools, which are left out
/// one by one; the places are in its manifest.
fn refused(files: &PluginFiles, plugin: &Plugin) -> Vec<Violation> {
    let mut plan = plan_alone(files, plugin);
    plan.conflicts.retain(|conflict| conflict.kind == "plugin");
    let in_manifest = plan.reasons().into_iter().map(|mut violation| {
        violation.pointer.insert_str(0, plugin_package::MANIFEST);
        violation
    });
    in_manifest.collect()
}

/// Checks that files of the plugin directory may be in force without a person, or that the lock approves them.
///
/// # Errors
/// All reasons against it.
pub(super) fn check(
    (files, plugin): (&PluginFiles, &Plugin),
    place: &str,
    before: Option<&ActivePlugin>,
    is_approved: bool,
) -> Result<(), Vec<Violation>> {
    let refused = refused(files, plugin);
    if !refused.is_empty() {
        return Err(refused);
    }
    if is_approved {
        return Ok(());
    }
    let in_force = before.map(|before| before.plugin.version(&[]));
    let reasons = approval::reasons(in_force.as_ref(), &plugin.version(&[]));
    if reasons.is_empty() {
        return Ok(());
    }
    let message = format!(
        "{} A person has to approve it: plan it with `tavern plugins plan {place}`, and install the plan",
        reasons.join(" ")
    );
    Err(vec![Violation::new(
        plugin_package::MANIFEST,
        APPROVAL_NEEDED,
        message,
    )])
}
