//! `files`, `storage` and `resources`: accesses and amounts.

use super::Reader;
use crate::{
    permissions::{
        MAX_STORAGE_BYTES,
        permission::{Permission, WorkspaceAccess},
        resources::{LIMITS, ResourceRequest},
    },
    section::Section,
};

impl Reader<'_> {
    pub(super) fn files(&mut self, section: &mut Section<'_>) {
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

    pub(super) fn storage(&mut self, section: &mut Section<'_>) {
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

    pub(super) fn resources(&mut self, section: &mut Section<'_>) {
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
}
