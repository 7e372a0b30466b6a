//! The files that differ, and the workflows among them.

use std::collections::BTreeMap;

use super::{
    document::FileChanges,
    input::{PackedFile, PluginVersion},
};

/// Compares the files of both versions by their digests.
pub(super) fn changes(in_force: &[PackedFile], new: &[PackedFile]) -> FileChanges {
    let by_path = |files: &'_ [PackedFile]| -> BTreeMap<String, String> {
        let each = files
            .iter()
            .map(|file| (file.path.clone(), file.sha256.clone()));
        each.collect()
    };
    let (before, after) = (by_path(in_force), by_path(new));
    let mut changes = FileChanges {
        count: new.len() as u64,
        bytes: new.iter().map(|file| file.size).sum(),
        ..FileChanges::default()
    };
    for (path, digest) in &after {
        match before.get(path) {
            None => changes.added.push(path.clone()),
            Some(other) if other != digest => changes.changed.push(path.clone()),
            Some(_) => {}
        }
    }
    let gone = before.keys().filter(|path| !after.contains_key(*path));
    changes.removed = gone.cloned().collect();
    changes
}

/// Returns the workflows that a version brings, as `<plugin>:<stem>`.
pub(super) fn workflows(version: &PluginVersion<'_>) -> Vec<String> {
    let Some(entry) = &version.manifest.workflows_entry else {
        return Vec::new();
    };
    let stems = version.files.iter().filter_map(|file| {
        let name = file.path.strip_prefix(entry)?.strip_prefix('/')?;
        let stem = name.strip_suffix(".json")?;
        (!stem.is_empty() && !stem.contains('/')).then_some(stem)
    });
    let name = &version.manifest.name;
    stems.map(|stem| format!("{name}:{stem}")).collect()
}
