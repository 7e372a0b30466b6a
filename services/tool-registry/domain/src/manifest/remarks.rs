//! Findings about parts of a manifest that have no effect, or lack their permission.

use super::{Frontend, Manifest};
use crate::{
    diagnostic::Diagnostic,
    options::OptionKind,
    permissions::{Permission, PermissionRequest, PermissionState, Risk, change::is_covered},
};

pub(super) fn of(manifest: &Manifest) -> Vec<Diagnostic> {
    let mut found = without_effect(manifest);
    found.extend(libraries(manifest));
    found.extend(listed_only(manifest));
    found.extend(without_permission(manifest));
    found.extend(without_reason(&manifest.permissions));
    found
}

/// Returns a finding on each section that is read and not used yet.
fn without_effect(manifest: &Manifest) -> Vec<Diagnostic> {
    let not_yet =
        |request: &PermissionRequest| request.permission.kind().state() == PermissionState::NotYet;
    let sections = [
        (
            manifest.workflows_entry.is_some(),
            "/workflows",
            "workflows of plugins are not loaded; its tools are",
        ),
        (
            manifest.frontend != Frontend::default(),
            "/frontend",
            "front-end assets are not served yet",
        ),
        (
            manifest.permissions.iter().any(not_yet),
            "/permissions",
            "some of the permissions cannot be granted yet, so nothing that needs one works",
        ),
    ];
    let used = sections.into_iter().filter(|(used, ..)| *used);
    used.map(|(_, pointer, message)| Diagnostic::not_supported(pointer, message))
        .collect()
}

/// Returns a finding on the libraries that a plugin brings, as they have to be built.
fn libraries(manifest: &Manifest) -> Option<Diagnostic> {
    let lock = &manifest.dependencies.as_ref()?.lock;
    let message = format!(
        "its scripts import the libraries of '{lock}'; the operator builds them from its directory or .zip, \
         as with `tavern packages build --plugin {}`",
        manifest.name
    );
    Some(Diagnostic::warning(
        "/dependencies",
        "libraries_to_build",
        message,
    ))
}

/// Returns a finding on each part that front ends may apply and this server does not.
fn listed_only(manifest: &Manifest) -> impl Iterator<Item = Diagnostic> {
    let hooks = manifest.permissions.iter().filter_map(|request| {
        let Permission::ClientHook { point } = &request.permission else {
            return None;
        };
        let message =
            format!("hook:client:{point} belongs to the page and is not run by the server");
        let place = request.pointer.clone();
        Some(Diagnostic::warning(place, "client_hook_listed", message))
    });
    let not_applied = |place: String, verb: &str, target: &str| {
        let message = format!(
            "{target} is {verb} by front ends that have it; the page of this server does not"
        );
        Diagnostic::warning(place, "ui_not_applied", message)
    };
    let wraps = manifest.frontend.wraps.iter().enumerate();
    let wraps = wraps.map(move |(index, wrap)| {
        not_applied(format!("/frontend/wraps/{index}"), "wrapped", &wrap.target)
    });
    let overrides = manifest.frontend.overrides.iter().enumerate();
    let overrides = overrides.map(move |(index, each)| {
        let place = format!("/frontend/overrides/{index}");
        not_applied(place, "replaced", &each.target)
    });
    hooks.chain(wraps).chain(overrides)
}

/// Returns a finding on each part whose permission the manifest does not ask for.
fn without_permission(manifest: &Manifest) -> Vec<Diagnostic> {
    let mut wanted: Vec<(String, Permission, String)> = Vec::new();
    for (index, hook) in manifest.hooks.iter().enumerate() {
        let line = format!("permissions.hooks with hook:server:{}", hook.point);
        let permission = Permission::ServerHook { point: hook.point };
        wanted.push((format!("/hooks/{index}"), permission, line));
    }
    for each in &manifest.overrides {
        let line = format!("permissions.services.override with {}", each.service);
        let service = each.service.clone();
        let place = format!("/services/override/{service}");
        wanted.push((place, Permission::ServiceOverride { service }, line));
    }
    let frontend = &manifest.frontend;
    for (index, each) in frontend.outlets.iter().enumerate() {
        let line = format!("permissions.ui.inject with {}", each.outlet);
        let outlet = each.outlet.clone();
        let place = format!("/frontend/outlets/{index}");
        wanted.push((place, Permission::UiInject { outlet }, line));
    }
    for (index, each) in frontend.wraps.iter().enumerate() {
        let line = format!("permissions.ui.wrap with {}", each.target);
        let component = each.target.clone();
        let place = format!("/frontend/wraps/{index}");
        wanted.push((place, Permission::UiWrap { component }, line));
    }
    for (index, each) in frontend.overrides.iter().enumerate() {
        let line = format!("permissions.ui.override with {}", each.target);
        let component = each.target.clone();
        let place = format!("/frontend/overrides/{index}");
        wanted.push((place, Permission::UiOverride { component }, line));
    }
    for (index, option) in manifest.options.iter().enumerate() {
        if let OptionKind::Secret { secret } = &option.kind {
            let line = format!("permissions.secrets with {secret}");
            let name = secret.clone();
            let place = format!("/configOptions/{index}/secret");
            wanted.push((place, Permission::Secret { name }, line));
        }
    }
    let missing = wanted
        .into_iter()
        .filter(|(_, permission, _)| !is_covered(permission, &manifest.permissions));
    missing
        .map(|(place, _, line)| {
            let message = format!("has no effect without its permission; add {line}");
            Diagnostic::warning(place, "permission_missing", message)
        })
        .collect()
}

/// Returns a finding on each list of permissions of high risk that gives no reason for one.
fn without_reason(permissions: &[PermissionRequest]) -> Vec<Diagnostic> {
    let silent = permissions.iter().filter(|request| {
        let is_call = matches!(request.permission, Permission::ToolCall { .. });
        let risk = request.permission.risk(|_| None);
        request.reason.is_empty() && risk == Risk::High && !is_call
    });
    let mut found: Vec<Diagnostic> = Vec::new();
    for request in silent {
        let (list, entry) = request
            .pointer
            .rsplit_once('/')
            .unwrap_or((&request.pointer, ""));
        let in_list = !entry.is_empty() && entry.bytes().all(|byte| byte.is_ascii_digit());
        let place = if in_list { list } else { &request.pointer };
        if found.iter().all(|other| other.path != place) {
            let message = "no reason is given";
            found.push(Diagnostic::warning(
                place,
                "permission_without_reason",
                message,
            ));
        }
    }
    found
}
