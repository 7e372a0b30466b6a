//! The section `permissions` of a manifest.

use call_outcome::Violation;
use core_types::ToolId;
use serde_json::Value;

use super::{
    DEFAULT_PORT, MAX_HOSTS, MAX_STORAGE_BYTES, OVERRIDABLE_SERVICES, PermissionRequest,
    READABLE_SERVICES,
    permission::{Permission, WorkspaceAccess},
    resources::{LIMITS, ResourceRequest},
};
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
/// The longest name of a host, in bytes, by the rules of DNS.
const MAX_HOST_BYTES: usize = 253;
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
            self.names(&mut ui, "inject", |outlet| {
                Some(Permission::UiInject { outlet })
            });
            self.names(&mut ui, "wrap", |component| {
                Some(Permission::UiWrap { component })
            });
            self.names(&mut ui, "override", |component| {
                Some(Permission::UiOverride { component })
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
        self.names(&mut section, "secrets", |name| {
            Some(Permission::Secret { name })
        });
        self.files(&mut section);
        self.storage(&mut section);
        self.resources(&mut section);
        self.names(&mut section, "packages", |set| {
            Some(Permission::Packages { set })
        });
        self.unknown(section, "");
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

    fn unknown(&mut self, section: Section<'_>, prefix: &str) {
        for (key, place, _) in section.members() {
            if !AREAS.contains(&key) {
                self.refuse_unknown(place, &format!("{prefix}{key}"));
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
        permission: impl Fn(String) -> Option<Permission>,
    ) {
        for entry in self.entries(section, key, "name") {
            match is_plain(&entry.name).then(|| permission(entry.name.clone())) {
                Some(Some(permission)) => self.ask(&entry, permission),
                _ => self.no_name(&entry),
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

    fn hosts(&mut self, section: &mut Section<'_>) {
        let place = section.place("network");
        let entries = self.entries(section, "network", "host");
        if entries.len() > MAX_HOSTS {
            let message = format!(
                "asks for {} hosts; at most {MAX_HOSTS}: remove some",
                entries.len()
            );
            self.wrong(&place, "limit_exceeded", message);
        }
        for mut entry in entries {
            let digits = |port: &str| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
            let (host, written) = match entry.name.rsplit_once(':') {
                Some((host, port)) if entry.rest.is_none() && digits(port) => {
                    (host.to_owned(), Some(port.parse().unwrap_or_default()))
                }
                _ => (entry.name.clone(), None),
            };
            let port = match &mut entry.rest {
                Some(rest) => rest
                    .whole("port", 1..=i64::from(u16::MAX), self.findings)
                    .and_then(|port| u16::try_from(port).ok()),
                None => written,
            };
            match (host_name(&host), port.unwrap_or(DEFAULT_PORT)) {
                (Ok(host), port) if port > 0 => {
                    self.ask(&entry, Permission::Network { host, port })
                }
                (Ok(_), _) => {
                    let message = format!("'{}' has no port from 1 to 65535", entry.name);
                    self.wrong(&entry.pointer, "out_of_range", message);
                }
                (Err(problem), _) => {
                    let message = format!("'{}' {problem}", entry.name);
                    self.wrong(&entry.pointer, "invalid_host", message);
                }
            }
            self.close(entry);
        }
    }

    fn files(&mut self, section: &mut Section<'_>) {
        let Some(mut files) = self.area(section, "files", &["workspace", "reason"]) else {
            return;
        };
        let place = files.place("workspace");
        let access = files.word("workspace", &["read", "write"], self.findings);
        let reason = files.text("reason", self.findings).unwrap_or_default();
        let access = match access {
            Some("read") => WorkspaceAccess::Read,
            Some(_) => WorkspaceAccess::Write,
            None => return,
        };
        self.ask_for(&place, &reason, Permission::Workspace { access });
    }

    fn storage(&mut self, section: &mut Section<'_>) {
        let wanted = "a mapping with 'bytes'";
        let Some(mut storage) = section.section("storage", wanted, self.findings) else {
            return;
        };
        let place = storage.place("");
        let most = i64::try_from(MAX_STORAGE_BYTES).unwrap_or(i64::MAX);
        let bytes = storage.whole("bytes", 1..=most, self.findings);
        let reason = storage.text("reason", self.findings).unwrap_or_default();
        storage.close(self.findings);
        if let Some(bytes) = bytes.and_then(|bytes| u64::try_from(bytes).ok()) {
            self.ask_for(&place, &reason, Permission::Storage { bytes });
        }
    }

    fn resources(&mut self, section: &mut Section<'_>) {
        let wanted = "a mapping of wall_seconds, cpu_seconds, memory_bytes, processes";
        let Some(mut resources) = section.section("resources", wanted, self.findings) else {
            return;
        };
        let place = resources.place("");
        let mut limits = ResourceRequest::default();
        for (name, range) in LIMITS {
            let value = resources.whole(name, range, self.findings);
            if let Some(value) = value.and_then(|value| u64::try_from(value).ok()) {
                limits.set(name, value);
            }
        }
        let reason = resources.text("reason", self.findings).unwrap_or_default();
        // An unknown limit is an unknown permission, not a key without effect.
        let known = LIMITS.map(|(name, _)| name);
        for (key, place, _) in resources.members() {
            if !known.contains(&key) && key != "reason" {
                self.refuse_unknown(place, &format!("resources.{key}"));
            }
        }
        if limits != ResourceRequest::default() {
            self.ask_for(&place, &reason, Permission::Resources(limits));
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

/// Returns a host name in lower case.
fn host_name(written: &str) -> Result<String, &'static str> {
    let host = written.to_ascii_lowercase();
    if host.contains('*') {
        return Err("has a wildcard; name each host");
    }
    let label = |label: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        (1..=63).contains(&label.len())
            && label.chars().all(plain)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if host.len() > MAX_HOST_BYTES || !host.split('.').all(label) {
        return Err(
            "is not a host name; write it without scheme and path, such as api.example.com",
        );
    }
    let last = host.rsplit('.').next().unwrap_or_default();
    if last.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("is an address, which no certificate names; write the host's name");
    }
    Ok(host)
}
