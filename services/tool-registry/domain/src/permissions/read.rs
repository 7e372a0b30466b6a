//! The section `permissions` of a manifest.

mod amounts;
mod hosts;

use call_outcome::Violation;
use core_types::ToolId;
use serde_json::Value;

use super::{OVERRIDABLE_SERVICES, PermissionRequest, READABLE_SERVICES, permission::Permission};
use crate::{
    hook_point::HookPoint,
    section::{Findings, Section},
};

/// The areas of `permissions`.
const AREAS: [&str; 10] = [
    "hooks",
    "ui",
    "services",
    "tools",
    "network",
    "secrets",
    "files",
    "storage",
    "resources",
    "packages",
];
const MAX_NAME_BYTES: usize = 128;

/// Reads the permissions that a manifest asks for, in the order of their kinds.
pub(crate) fn read(root: &mut Section<'_>, findings: &mut Findings) -> Vec<PermissionRequest> {
    let wanted = "a mapping, such as files: {workspace: read}";
    let Some(section) = root.section("permissions", wanted, findings) else {
        return Vec::new();
    };
    let mut reader = Reader {
        requests: Vec::new(),
        findings,
    };
    reader.areas(section);
    reader.finish()
}

struct Reader<'f> {
    requests: Vec<PermissionRequest>,
    findings: &'f mut Findings,
}

/// An entry of a list: its name and its reason.
struct Listed<'a> {
    pointer: String,
    name: String,
    reason: String,
    /// The mapping that it was written as, not closed yet.
    rest: Option<Section<'a>>,
}

impl Reader<'_> {
    fn areas(&mut self, mut section: Section<'_>) {
        self.hooks(&mut section);
        if let Some(mut ui) = self.area(&mut section, "ui", &["inject", "wrap", "override"]) {
            self.names(&mut ui, "inject", |outlet| Permission::UiInject { outlet });
            self.names(&mut ui, "wrap", |component| Permission::UiWrap {
                component,
            });
            self.names(&mut ui, "override", |component| Permission::UiOverride {
                component,
            });
        }
        if let Some(mut services) = self.area(&mut section, "services", &["read", "override"]) {
            self.words(&mut services, "read", &READABLE_SERVICES, |area| {
                Permission::ServiceRead { area }
            });
            self.words(
                &mut services,
                "override",
                &OVERRIDABLE_SERVICES,
                |service| Permission::ServiceOverride { service },
            );
        }
        if let Some(mut tools) = self.area(&mut section, "tools", &["call"]) {
            for entry in self.entries(&mut tools, "call", "name") {
                match ToolId::new(entry.name.trim()) {
                    Ok(id) => self.ask(&entry, Permission::ToolCall { tool_id: id.into() }),
                    Err(error) => self.wrong(&entry.pointer, "invalid_id", error.to_string()),
                }
                self.close(entry);
            }
        }
        self.hosts(&mut section);
        self.names(&mut section, "secrets", |name| Permission::Secret { name });
        self.files(&mut section);
        self.storage(&mut section);
        self.resources(&mut section);
        self.names(&mut section, "packages", |set| Permission::Packages { set });
        self.unknown(&section);
    }

    /// Reads the mapping of an area and refuses its unknown parts.
    fn area<'a>(
        &mut self,
        section: &mut Section<'a>,
        area: &'static str,
        parts: &[&'static str],
    ) -> Option<Section<'a>> {
        let wanted = format!("a mapping of {}", parts.join(", "));
        let area_section = section.section(area, &wanted, self.findings)?;
        for (key, place, _) in area_section.members() {
            if !parts.contains(&key) {
                self.refuse_unknown(place, &format!("{area}.{key}"));
            }
        }
        Some(area_section)
    }

    fn unknown(&mut self, section: &Section<'_>) {
        for (key, place, _) in section.members() {
            if !AREAS.contains(&key) {
                self.refuse_unknown(place, key);
            }
        }
    }

    fn refuse_unknown(&mut self, place: String, name: &str) {
        let message = format!(
            "'{name}' is not a permission that exists, so its power cannot be judged; remove it, or take \
             one of hooks, ui.inject, ui.wrap, ui.override, services.read, services.override, tools.call, \
             network, secrets, files.workspace, storage, resources, packages"
        );
        self.wrong(&place, "unknown_permission", message);
    }

    fn wrong(&mut self, pointer: &str, code: &'static str, message: impl Into<String>) {
        self.findings.wrong(pointer, code, message);
    }

    /// Adds a request for a permission.
    fn ask(&mut self, entry: &Listed<'_>, permission: Permission) {
        self.ask_for(&entry.pointer, &entry.reason, permission);
    }

    fn ask_for(&mut self, pointer: &str, reason: &str, permission: Permission) {
        let asked = |request: &PermissionRequest| request.permission == permission;
        if self.requests.iter().any(asked) {
            let message = format!("{permission} is asked for twice; remove one");
            self.findings.strictly(pointer, "repeated", message);
            return;
        }
        self.requests.push(PermissionRequest {
            permission,
            reason: reason.to_owned(),
            pointer: pointer.to_owned(),
        });
    }

    /// Reads a list whose entries are texts, or mappings with the text under `name_key` and a reason.
    fn entries<'a>(
        &mut self,
        section: &mut Section<'a>,
        key: &'static str,
        name_key: &'static str,
    ) -> Vec<Listed<'a>> {
        let wanted = format!("a list of {{{name_key}, reason}}");
        let items = section.list(key, &wanted, self.findings);
        let read = items.into_iter().filter_map(|(pointer, item)| {
            let reason = String::new();
            if let Value::String(text) = item {
                let name = text.clone();
                let rest = None;
                return Some(Listed {
                    pointer,
                    name,
                    reason,
                    rest,
                });
            }
            let wanted = format!("text, or a mapping with '{name_key}' and 'reason'");
            let mut entry = Section::of(item, &pointer, "each entry", &wanted, self.findings)?;
            let form = "the name that is asked for";
            let name = entry.required_text(name_key, form, self.findings);
            let reason = entry.text("reason", self.findings).unwrap_or_default();
            let Some(name) = name else {
                entry.close(self.findings);
                return None;
            };
            let rest = Some(entry);
            Some(Listed {
                pointer,
                name,
                reason,
                rest,
            })
        });
        read.collect()
    }

    fn close(&mut self, entry: Listed<'_>) {
        if let Some(rest) = entry.rest {
            rest.close(self.findings);
        }
    }

    /// Reads a list of names.
    fn names(
        &mut self,
        section: &mut Section<'_>,
        key: &'static str,
        permission: impl Fn(String) -> Permission,
    ) {
        for entry in self.entries(section, key, "name") {
            match is_plain(&entry.name) {
                true => self.ask(&entry, permission(entry.name.clone())),
                false => self.no_name(&entry),
            }
            self.close(entry);
        }
    }

    /// Reads a list of names out of a few.
    fn words(
        &mut self,
        section: &mut Section<'_>,
        key: &'static str,
        words: &'static [&'static str],
        permission: impl Fn(String) -> Permission,
    ) {
        for entry in self.entries(section, key, "name") {
            if words.contains(&entry.name.as_str()) {
                self.ask(&entry, permission(entry.name.clone()));
            } else {
                let message = format!(
                    "there is no permission to {key} '{}'; write one of {}",
                    entry.name,
                    words.join(", ")
                );
                let violation =
                    Violation::new(entry.pointer.clone(), "unknown_permission", message);
                self.findings
                    .add(violation.nearest(&entry.name, words.iter().copied()));
            }
            self.close(entry);
        }
    }

    fn no_name(&mut self, entry: &Listed<'_>) {
        let message = format!(
            "'{}' is not a name: take letters, digits and - _ . : / only, at most {MAX_NAME_BYTES}; there \
             are no wildcards",
            entry.name
        );
        self.wrong(&entry.pointer, "invalid_name", message);
    }

    fn hooks(&mut self, section: &mut Section<'_>) {
        for entry in self.entries(section, "hooks", "point") {
            let server = entry.name.strip_prefix("hook:server:");
            let client = entry.name.strip_prefix("hook:client:");
            if let Some(point) = server.and_then(HookPoint::parse) {
                self.ask(&entry, Permission::ServerHook { point });
            } else if let Some(point) = client.filter(|point| is_plain(point)) {
                let point = point.to_owned();
                self.ask(&entry, Permission::ClientHook { point });
            } else {
                let message = format!(
                    "'{}' is not a point of a hook; write hook:server:<point> with one of {}, or \
                     hook:client:<point> for a hook in the page",
                    entry.name,
                    HookPoint::all()
                        .map(HookPoint::as_str)
                        .collect::<Vec<_>>()
                        .join(", ")
                );
                let known: Vec<String> = HookPoint::all()
                    .map(|point| format!("hook:server:{point}"))
                    .collect();
                let violation =
                    Violation::new(entry.pointer.clone(), "unknown_permission", message);
                self.findings
                    .add(violation.nearest(&entry.name, known.iter().map(String::as_str)));
            }
            self.close(entry);
        }
    }

    fn finish(mut self) -> Vec<PermissionRequest> {
        // The sort is stable: permissions of one kind keep the order of the manifest.
        self.requests
            .sort_by_key(|request| request.permission.kind());
        self.requests
    }
}

/// Whether a text is a name without wildcards, spaces or marks that could be mistaken.
fn is_plain(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:/".contains(c);
    !name.is_empty() && name.len() <= MAX_NAME_BYTES && name.chars().all(plain)
}
