//! Loading plugins from a directory.
//!
//! Each directory beneath it that has a `plugin.yaml` is a plugin. A plugin is read whole into
//! memory before any of it counts: scripts see these files later, whatever happens on the disk
//! meanwhile. A plugin with a mistake of its own is skipped whole, and a tool with one is left out
//! of its plugin, with every mistake named.

mod describe;
#[cfg(test)]
mod tests;

use std::{io, path::Path};

use call_outcome::{Violation, sentences};
use cap_std::{ambient_authority, fs::Dir};
use plugin_package::{Plugin, check, open_plugin, read_directory};

pub use describe::{PluginInfo, describe};

/// The most plugins that are looked at.
pub const MAX_PLUGINS: usize = 512;

/// A plugin that was read whole.
#[derive(Clone, Debug)]
pub struct LoadedPlugin {
    /// The name of its directory.
    pub directory: String,
    /// The plugin.
    pub plugin: Plugin,
}

/// A plugin, or a tool of one, that was not taken.
#[derive(Clone, Debug, PartialEq)]
pub struct Skipped {
    /// The directory of the plugin.
    pub directory: String,
    /// All problems, with places relative to the plugin's directory.
    pub violations: Vec<Violation>,
}

impl std::fmt::Display for Skipped {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            formatter,
            "{}: {}",
            self.directory,
            sentences(&self.violations)
        )
    }
}

/// The contents of a directory of plugins.
#[derive(Clone, Debug, Default)]
pub struct Plugins {
    /// The plugins by directory name.
    pub loaded: Vec<LoadedPlugin>,
    /// The directories that were skipped.
    pub skipped: Vec<Skipped>,
}

/// Loads every plugin of a directory. Entries without a `plugin.yaml` and names that begin with a
/// dot are passed over.
///
/// # Errors
/// The system's error when the directory itself cannot be listed.
pub fn load(directory: &Path) -> io::Result<Plugins> {
    let root = Dir::open_ambient_dir(directory, ambient_authority())?;
    let mut names = Vec::new();
    for entry in root.entries()? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.retain(|name| !name.starts_with('.'));
    names.sort();
    let mut plugins = Plugins::default();
    for (index, name) in names.into_iter().enumerate() {
        let loaded = if index < MAX_PLUGINS {
            load_one(&root, &name, &plugins.loaded)
        } else {
            let message = format!("more than {MAX_PLUGINS} plugins; remove some");
            Err(vec![Violation::new("", "limit_exceeded", message)])
        };
        match loaded {
            Ok(Some((plugin, wrong))) => {
                plugins.loaded.push(LoadedPlugin {
                    directory: name.clone(),
                    plugin,
                });
                if !wrong.is_empty() {
                    plugins.skipped.push(Skipped {
                        directory: name,
                        violations: wrong,
                    });
                }
            }
            Ok(None) => {}
            Err(violations) => plugins.skipped.push(Skipped {
                directory: name,
                violations,
            }),
        }
    }
    Ok(plugins)
}

/// Loads one plugin, if it is one, with all problems of its single tools.
fn load_one(
    root: &Dir,
    name: &str,
    earlier: &[LoadedPlugin],
) -> Result<Option<(Plugin, Vec<Violation>)>, Vec<Violation>> {
    let Some(dir) = open_plugin(root, name)? else {
        return Ok(None);
    };
    let checked = check(&read_directory(&dir)?);
    let Some(plugin) = checked.plugin else {
        return Err(checked.violations);
    };
    if let Some(first) = earlier
        .iter()
        .find(|loaded| loaded.plugin.manifest.name == plugin.manifest.name)
    {
        let message = format!(
            "the plugin in '{}' has the name '{}' already; rename one of them",
            first.directory, plugin.manifest.name
        );
        let violation = Violation::new("plugin.yaml/name", "name_taken", message);
        return Err([vec![violation], checked.violations].concat());
    }
    Ok(Some((plugin, checked.violations)))
}
