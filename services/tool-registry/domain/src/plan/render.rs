//! A plan as plain text, for a terminal and for the page: the reasons not to install it first, then
//! permissions, tools and the rest.
//!
//! Names, reasons and descriptions come from the author of the plugin. Characters that a terminal
//! obeys, or that turn the direction of a text, are written as `\u{…}`, so that a text cannot
//! change the look of the lines around it; each stays on one line.

use std::fmt::Write as _;

use super::document::{
    Change, ChangeClass, Plan, PlannedEffects, PlannedHook, PlannedPermission, PlannedTool,
};
use crate::{
    naming,
    permissions::{Permission, PermissionState, Risk},
};

/// Writes a plan as text, each line with its line break.
pub fn text(plan: &Plan) -> String {
    let mut text = Lines::default();
    headline(plan, &mut text);
    refusals(plan, &mut text);
    permissions(plan, &mut text);
    tools(plan, &mut text);
    parts(plan, &mut text);
    options(plan, &mut text);
    dependents(plan, &mut text);
    files(plan, &mut text);
    if !plan.remarks.is_empty() {
        text.heading("Remarks");
        for remark in &plan.remarks {
            text.at(&remark.pointer, &remark.message);
        }
    }
    if !plan.plan_digest.is_empty() {
        text.blank();
        text.line(0, &format!("Plan digest {}", plan.plan_digest));
    }
    text.written
}

#[derive(Default)]
struct Lines {
    written: String,
}

impl Lines {
    fn line(&mut self, indent: usize, text: &str) {
        self.written.push_str(&" ".repeat(indent));
        for character in text.chars() {
            match character.is_control() || naming::invisible(character) {
                true => self.written.extend(character.escape_unicode()),
                false => self.written.push(character),
            }
        }
        self.written.push('\n');
    }

    fn blank(&mut self) {
        self.written.push('\n');
    }

    fn heading(&mut self, text: &str) {
        self.blank();
        self.line(0, text);
    }

    /// Writes a finding behind its place, if it has one.
    fn at(&mut self, pointer: &str, message: &str) {
        match pointer {
            "" => self.line(2, &format!("- {message}")),
            pointer => self.line(2, &format!("- {pointer}: {message}")),
        }
    }
}

fn headline(plan: &Plan, text: &mut Lines) {
    let mut first = format!("{} {}", plan.plugin, version(&plan.version));
    match &plan.replaces {
        Some(replaced) => {
            let _ = write!(first, ", in the place of {}", version(&replaced.version));
        }
        None => first.push_str(", a first install"),
    }
    text.line(0, &first);
    if !plan.expire_time.is_empty() {
        let (source, time) = (&plan.source, &plan.expire_time);
        text.line(
            0,
            &format!("Plan from {source}, to be decided before {time}"),
        );
    }
    text.line(0, &format!("Package {}", plan.package_digest));
}

fn version(version: &str) -> &str {
    match version {
        "" => "without a version",
        version => version,
    }
}

fn refusals(plan: &Plan, text: &mut Lines) {
    if plan.is_installable() {
        return;
    }
    text.heading("It cannot be installed");
    for violation in &plan.violations {
        text.at(&violation.pointer, &violation.message);
    }
    for conflict in &plan.conflicts {
        text.line(
            2,
            &format!(
                "- The name {} conflicts with {}: {}. Remedy: {}.",
                conflict.id, conflict.held_by, conflict.how, conflict.remedy
            ),
        );
    }
}

fn permissions(plan: &Plan, text: &mut Lines) {
    if plan.permissions.is_empty() {
        text.heading("It asks for no permission");
        return;
    }
    for (change, heading) in [
        (Change::Added, "New permissions"),
        (Change::Kept, "Permissions as before"),
        (
            Change::Removed,
            "Permissions that it does not need any more",
        ),
    ] {
        let of_change = |each: &&PlannedPermission| each.change == change;
        let mut each = plan.permissions.iter().filter(of_change).peekable();
        if each.peek().is_some() {
            text.heading(heading);
        }
        each.for_each(|permission| one_permission(permission, text));
    }
}

fn one_permission(planned: &PlannedPermission, text: &mut Lines) {
    let permission = &planned.permission;
    let risk = format!("{} risk", planned.risk.as_str());
    let sentence = permission.sentence();
    text.line(2, &format!("{risk:<12} {sentence}  [{permission}]"));
    if planned.change == Change::Removed {
        return;
    }
    match planned.reason.as_str() {
        "" if planned.risk == Risk::Low => {}
        "" => text.line(15, "The author gives no reason."),
        reason => text.line(15, &format!("The author's reason: {reason}")),
    }
    // Their use is that they are listed, which the state says.
    let is_listed = matches!(
        permission,
        Permission::UiWrap { .. } | Permission::UiOverride { .. }
    );
    if !planned.used_by.is_empty() && !is_listed {
        text.line(15, &format!("Used by {}.", planned.used_by.join(", ")));
    }
    match permission.kind().state() {
        PermissionState::InForce => {}
        PermissionState::Listed => text.line(15, "Only listed; it grants nothing on this server."),
        PermissionState::NotYet => text.line(15, "Does not work yet."),
    }
}

fn tools(plan: &Plan, text: &mut Lines) {
    if plan.tools.is_empty() {
        return;
    }
    text.heading("Tools");
    for tool in &plan.tools {
        one_tool(tool, text);
    }
}

fn one_tool(tool: &PlannedTool, text: &mut Lines) {
    let change = match tool.change {
        Change::Added => "new".to_owned(),
        Change::Removed => "removed".to_owned(),
        Change::Kept => "as before".to_owned(),
        Change::Changed => {
            let classes: Vec<&str> = tool
                .classes
                .iter()
                .map(|class| class_words(*class))
                .collect();
            format!("changed: {}", classes.join(", "))
        }
    };
    text.line(2, &format!("{} ({change})", tool.tool_id));
    if tool.change != Change::Removed {
        text.line(4, effects(tool.effects));
        if tool.effects.parallel_safe {
            text.line(4, "Its calls may run at once.");
        }
    }
}

fn class_words(class: ChangeClass) -> &'static str {
    match class {
        ChangeClass::Description => "its texts",
        ChangeClass::SchemaWider => "it takes more arguments than before",
        ChangeClass::SchemaNarrower => "calls that were valid may not be any more",
        ChangeClass::Output => "its result",
        ChangeClass::Examples => "its examples",
        ChangeClass::Effects => "the effects that it declares",
        ChangeClass::Implementation => "its implementation or the files that it runs",
        ChangeClass::Permissions => "the rights that it asks for",
        ChangeClass::Timeout => "its time limit",
    }
}

fn effects(effects: PlannedEffects) -> &'static str {
    match effects {
        PlannedEffects {
            destructive: true, ..
        } => "It declares that it destroys data that cannot be restored.",
        PlannedEffects {
            read_only: true, ..
        } => "It declares that it changes nothing.",
        PlannedEffects {
            idempotent: true, ..
        } => "It has effects, and declares that repeating a call has no further one.",
        _ => "It has effects, and repeating a call repeats them.",
    }
}

fn parts(plan: &Plan, text: &mut Lines) {
    for (heading, names) in [("Node types", &plan.nodes), ("Workflows", &plan.workflows)] {
        if !names.is_empty() {
            text.heading(heading);
            names.iter().for_each(|name| text.line(2, name));
        }
    }
    if !plan.libraries.is_empty() {
        text.heading("Libraries that its scripts import");
        let libraries = plan.libraries.iter();
        libraries.for_each(|(name, version)| text.line(2, &format!("{name} {version}")));
    }
    if !plan.hooks.is_empty() {
        text.heading("Hooks");
        plan.hooks.iter().for_each(|hook| one_hook(hook, text));
    }
    if !plan.overrides.is_empty() {
        text.heading("Services that it replaces");
    }
    for each in &plan.overrides {
        let absent = match each.fallback.as_str() {
            "builtin" => "the platform's own service answers",
            _ => "calls fail",
        };
        let (service, backend) = (&each.service, &each.backend);
        text.line(
            2,
            &format!("{service}, by the backend {backend}; where it cannot be reached, {absent}"),
        );
        if !each.missing_methods.is_empty() {
            let missing = each.missing_methods.join(", ");
            text.line(4, &format!("The backend lacks the methods {missing}."));
        }
    }
}

fn one_hook(hook: &PlannedHook, text: &mut Lines) {
    let may = match hook.may.is_empty() {
        true => "observes".to_owned(),
        false => format!("may {}", hook.may.join(", ")),
    };
    text.line(
        2,
        &format!(
            "{} at {}: {may}; where it fails: {}",
            hook.id, hook.point, hook.on_failure
        ),
    );
    if hook.chain.len() > 1 {
        text.line(4, &format!("Order: {}", hook.chain.join(", then ")));
    }
}

fn options(plan: &Plan, text: &mut Lines) {
    if plan.config_options.is_empty() {
        return;
    }
    text.heading("Options");
    for option in &plan.config_options {
        text.line(2, &format!("{}: {}", option.key, option.state));
    }
}

fn dependents(plan: &Plan, text: &mut Lines) {
    let dependents = &plan.dependents;
    let kinds = [
        ("agent profiles", &dependents.profiles),
        ("workflows", &dependents.workflows),
        ("plugins", &dependents.plugins),
    ];
    if kinds.iter().all(|(_, names)| names.is_empty()) {
        return;
    }
    text.heading("Used by");
    for (kind, names) in kinds.iter().filter(|(_, names)| !names.is_empty()) {
        text.line(2, &format!("{kind}: {}", names.join(", ")));
    }
}

fn files(plan: &Plan, text: &mut Lines) {
    let files = &plan.files;
    text.heading(&format!("Files: {}, {} bytes", files.count, files.bytes));
    for (mark, paths) in [
        ("new", &files.added),
        ("changed", &files.changed),
        ("removed", &files.removed),
    ] {
        for path in paths {
            text.line(2, &format!("{mark:<8} {path}"));
        }
    }
}
