//! The plugin directory, which is scanned again and again: only files that changed are read.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    io,
    path::Path,
    sync::Arc,
};

use call_outcome::Violation;
use cap_std::{
    ambient_authority,
    fs::{Dir, MetadataExt},
};
use plugin_package::{Checked, Plugin, PluginFiles, check, open_plugin, read_directory};

use super::{MAX_PLUGINS, state::StoredPlugin, watcher::Watcher};

/// The most entries of a plugin whose metadata is compared; a directory with more is read each time.
const MAX_COMPARED: usize = 2_048;

/// The deepest directory whose metadata is compared.
const MAX_DEPTH: usize = 16;

/// The content of a directory below the plugin directory.
#[derive(Debug)]
pub(super) enum Content {
    /// The files of a plugin, which may have faults.
    Files(PluginFiles, Box<Checked>),
    /// Files that are no plugin, with all reasons.
    Refused(Vec<Violation>),
}

/// The scans without a reported change after which everything is compared all the same: a minute.
const MAX_QUIET: u32 = 30;

/// The plugin directory as it was found.
#[derive(Debug, Default)]
pub(super) struct Directory {
    /// Counts the scans that found a change.
    version: u64,
    /// Watches for changes since the last comparison; `None` where not all are reported.
    watcher: Option<Watcher>,
    /// Counts the scans since then.
    quiet: u32,
    seen: BTreeMap<String, (u64, Arc<Content>)>,
}

impl Directory {
    /// Scans as [`Self::scan`] does, unless the watcher reports no change.
    ///
    /// # Errors
    /// As for [`Self::scan`].
    pub(super) fn scan_if_changed(&mut self, path: &Path) -> io::Result<()> {
        if self.quiet < MAX_QUIET && self.watcher.as_mut().is_some_and(Watcher::is_quiet) {
            self.quiet += 1;
            return Ok(());
        }
        self.scan(path)
    }

    /// Reads everything that has changed since the last scan. Entries without a `plugin.yaml` and names that begin
    /// with a dot are passed over.
    ///
    /// # Errors
    /// The system's error when the directory itself cannot be listed.
    pub(super) fn scan(&mut self, path: &Path) -> io::Result<()> {
        // That of before knows nothing of a scan that fails.
        (self.watcher, self.quiet) = (None, 0);
        let mut watcher = Watcher::of(path);
        let root = Dir::open_ambient_dir(path, ambient_authority())?;
        let mut names = Vec::new();
        for entry in root.entries()? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.retain(|name| !name.starts_with('.'));
        names.sort();
        let mut seen = BTreeMap::new();
        let mut has_changed = false;
        for (index, name) in names.into_iter().enumerate() {
            let print = fingerprint((&root, path), &name, &mut watcher);
            let content = match self.seen.remove(&name) {
                Some((earlier, content)) if Some(earlier) == print => Some(content),
                earlier => {
                    let content = match index < MAX_PLUGINS {
                        true => read(&root, &name),
                        false => Some(one_too_many()),
                    };
                    has_changed |= earlier.is_some() || content.is_some();
                    content.map(Arc::new)
                }
            };
            if let Some(content) = content {
                seen.insert(name, (print.unwrap_or_default(), content));
            }
        }
        has_changed |= !self.seen.is_empty();
        self.version += u64::from(has_changed);
        self.seen = seen;
        self.watcher = watcher;
        Ok(())
    }

    /// Returns the number of scans that found a change.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// Returns the files that a stored plugin has in force, with the plugin, if they are in its directory.
    pub(super) fn plugin(&self, kept: &StoredPlugin) -> Option<(&PluginFiles, &Plugin)> {
        match &**self.get(&kept.directory)? {
            Content::Files(files, checked) if files.digest() == kept.package.package_digest => {
                Some((files, checked.plugin.as_ref()?))
            }
            _ => None,
        }
    }

    /// Returns the contents by directory.
    pub(super) fn contents(&self) -> impl Iterator<Item = (&str, &Arc<Content>)> {
        self.seen
            .iter()
            .map(|(name, (_, content))| (&**name, content))
    }

    /// Returns the content of a directory.
    pub(super) fn get(&self, directory: &str) -> Option<&Arc<Content>> {
        self.seen.get(directory).map(|(_, content)| content)
    }
}

fn one_too_many() -> Content {
    let message = format!("more than {MAX_PLUGINS} plugins; remove some");
    Content::Refused(vec![Violation::new("", "limit_exceeded", message)])
}

/// Reads a directory; nothing if it is no plugin.
fn read(root: &Dir, name: &str) -> Option<Content> {
    let files = match open_plugin(root, name) {
        Ok(None) => return None,
        Ok(Some(dir)) => read_directory(&dir),
        Err(violations) => Err(violations),
    };
    Some(match files {
        Ok(files) => {
            let checked = check(&files);
            Content::Files(files, Box::new(checked))
        }
        Err(violations) => Content::Refused(violations),
    })
}

/// Returns a number that changes when a file below a directory does; `None` if that cannot be seen. Each directory is
/// added to the watcher before it is read.
fn fingerprint(
    (root, path): (&Dir, &Path),
    name: &str,
    watcher: &mut Option<Watcher>,
) -> Option<u64> {
    let metadata = root.symlink_metadata(name).ok()?;
    let mut walk = Walk {
        watcher,
        left: MAX_COMPARED,
        hasher: DefaultHasher::new(),
    };
    stamp(&metadata, &mut walk.hasher);
    if metadata.is_dir() {
        walk.enter(&root.open_dir(name).ok()?, &path.join(name), 0)?;
    }
    Some(walk.hasher.finish())
}

/// A walk through the directories of a plugin.
struct Walk<'a> {
    watcher: &'a mut Option<Watcher>,
    /// The entries that may still be compared.
    left: usize,
    hasher: DefaultHasher,
}

impl Walk<'_> {
    fn enter(&mut self, dir: &Dir, path: &Path, depth: usize) -> Option<()> {
        if let Some(watcher) = self.watcher {
            watcher.add(path);
        }
        let mut entries: Vec<_> = dir.entries().ok()?.collect::<io::Result<_>>().ok()?;
        self.left = self.left.checked_sub(entries.len())?;
        entries.sort_by_key(|entry| entry.file_name());
        for entry in entries {
            let metadata = entry.metadata().ok()?;
            entry.file_name().hash(&mut self.hasher);
            stamp(&metadata, &mut self.hasher);
            if metadata.is_dir() && depth < MAX_DEPTH {
                let path = path.join(entry.file_name());
                self.enter(&entry.open_dir().ok()?, &path, depth + 1)?;
            }
        }
        Some(())
    }
}

fn stamp(metadata: &cap_std::fs::Metadata, hasher: &mut DefaultHasher) {
    let times = (
        metadata.mtime(),
        metadata.mtime_nsec(),
        metadata.ctime(),
        metadata.ctime_nsec(),
    );
    (
        metadata.dev(),
        metadata.ino(),
        metadata.size(),
        metadata.mode(),
        times,
    )
        .hash(hasher);
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_change_that_is_not_reported_is_found_after_a_minute_and_one_that_is_at_once() {
        // Every change of a tmpfs is reported, but for one through another hard link.
        let place = tempfile::tempdir_in("/dev/shm").unwrap();
        let (plugins, outside) = (place.path().join("plugins"), place.path().join("outside"));
        fs::create_dir_all(plugins.join("demo")).unwrap();
        fs::write(plugins.join("demo/plugin.yaml"), "name: demo").unwrap();
        fs::hard_link(plugins.join("demo/plugin.yaml"), &outside).unwrap();
        let mut directory = Directory::default();
        let mut scan = || {
            directory.scan_if_changed(&plugins).unwrap();
            directory.version()
        };
        assert_eq!((scan(), scan()), (1, 1));
        fs::write(&outside, "name: other").unwrap();
        let quiet = (1..MAX_QUIET).map(|_| scan());
        assert!(quiet.max() == Some(1));
        assert_eq!(scan(), 2);
        fs::write(plugins.join("demo/plugin.yaml"), "name: demo").unwrap();
        assert_eq!(scan(), 3);
    }

    #[test]
    fn a_directory_that_is_made_anew_is_read_at_once() {
        let place = tempfile::tempdir_in("/dev/shm").unwrap();
        let plugins = place.path().join("plugins");
        let mut directory = Directory::default();
        for version in [1, 2] {
            fs::create_dir_all(plugins.join("demo")).unwrap();
            let name = format!("name: demo-{version}");
            fs::write(plugins.join("demo/plugin.yaml"), name).unwrap();
            directory.scan_if_changed(&plugins).unwrap();
            assert_eq!(directory.version(), version);
            fs::remove_dir_all(&plugins).unwrap();
            for _ in 0..2 {
                assert!(directory.scan_if_changed(&plugins).is_err());
            }
        }
    }
}
