//! The permissions of plugins: which are asked for, and whether a person has to approve a change.

use call_outcome::Violation;
use plugin_package::Plugin;
use tool_domain::plan::{PackedFile, PluginVersion, approval};

use crate::tools::ActivePlugin;

/// The code of a finding about files that wait for a person.
const APPROVAL_NEEDED: &str = "approval_needed";

/// Returns everything that a plugin asks for, as plans spell it.
pub(super) fn asked_for(plugin: &Plugin) -> Vec<String> {
    let requests = plugin.manifest.permissions.iter();
    requests
        .map(|request| request.permission.to_string())
        .collect()
}

/// Returns the permissions of a plugin that cannot be granted yet; the places are in its manifest.
pub(super) fn not_yet(plugin: &Plugin) -> Vec<Violation> {
    let requests = plugin.manifest.permissions.iter();
    let refusals = requests.filter_map(|request| request.refusal());
    let in_manifest = refusals.map(|mut violation| {
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
    plugin: &Plugin,
    before: Option<&ActivePlugin>,
    is_approved: bool,
) -> Result<(), Vec<Violation>> {
    let not_yet = not_yet(plugin);
    if !not_yet.is_empty() {
        return Err(not_yet);
    }
    if is_approved {
        return Ok(());
    }
    let in_force = before.map(|before| version_of(&before.plugin, &[]));
    let reasons = approval::reasons(in_force.as_ref(), &version_of(plugin, &[]));
    if reasons.is_empty() {
        return Ok(());
    }
    let message = format!(
        "{} A person has to approve it: plan it with `tavern plugins plan`, and install the plan",
        reasons.join(" ")
    );
    Err(vec![Violation::new(
        plugin_package::MANIFEST,
        APPROVAL_NEEDED,
        message,
    )])
}

/// Returns a plugin as plans and approvals compare it.
pub(super) fn version_of<'a>(plugin: &'a Plugin, files: &'a [PackedFile]) -> PluginVersion<'a> {
    PluginVersion {
        manifest: &plugin.manifest,
        tools: &plugin.tools,
        nodes: &[],
        files,
        package_digest: &plugin.digest,
    }
}
