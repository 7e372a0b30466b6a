//! Loading plugins from a directory.
//!
//! Each directory beneath it that has a `plugin.yaml` is a plugin. A plugin is read whole into
//! memory before any of it counts: scripts see these files later, whatever happens on the disk
//! meanwhile. A plugin with a mistake of its own is skipped whole, and a tool with one is left out
//! of its plugin, with every mistake named.

mod describe;
mod read;
#[cfg(test)]
mod tests;

use call_outcome::{Violation, sentences};
use std::{collections::BTreeMap, io, path::Path, sync::Arc};

use cap_std::{ambient_authority, fs::Dir};
use settings::text_file;

use tool_domain::{
    definition::{self, Definition, Implementation},
    manifest::Manifest,
    package::{Package, PackageFile},
};

pub use describe::{PluginInfo, describe};

/// The most plugins that are looked at.
pub const MAX_PLUGINS: usize = 512;

/// A plugin that was read whole.
#[derive(Clone, Debug)]
pub struct Plugin {
    /// The name of its directory.
    pub directory: String,
    /// Its manifest.
    pub manifest: Manifest,
    /// Its tools, each with the files that its scripts see.
    pub tools: Vec<Definition>,
    /// The path of the definition of each tool, by id.
    pub definition_files: BTreeMap<String, String>,
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
    pub loaded: Vec<Plugin>,
    /// The directories that were skipped.
    pub skipped: Vec<Skipped>,
}

type Loaded = (Plugin, Vec<Violation>);
/// Tools with the paths of their definitions, and all problems of other tools.
type Tools<'a> = (Vec<(Definition, &'a str)>, Vec<Violation>);

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
                plugins.loaded.push(plugin);
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
fn load_one(root: &Dir, name: &str, earlier: &[Plugin]) -> Result<Option<Loaded>, Vec<Violation>> {
    let Some(dir) = read::open_plugin(root, name)? else {
        return Ok(None);
    };
    let manifest = read::manifest(&dir)?;
    if let Some(first) = earlier
        .iter()
        .find(|plugin| plugin.manifest.name == manifest.name)
    {
        let message = format!(
            "the plugin in '{}' has the name '{}' already; rename one of them",
            first.directory, manifest.name
        );
        return Err(vec![Violation::new(
            "plugin.yaml/name",
            "name_taken",
            message,
        )]);
    }
    let package = Arc::new(Package::new(read::files(&dir)?));
    let (tools, wrong) = tools_of(&manifest, &package);
    let definition_files = tools
        .iter()
        .map(|(tool, path)| (tool.id.to_string(), (*path).to_owned()));
    let plugin = Plugin {
        directory: name.to_owned(),
        manifest,
        definition_files: definition_files.collect(),
        tools: tools.into_iter().map(|(tool, _)| tool).collect(),
    };
    Ok(Some((plugin, wrong)))
}

/// Returns the tools of a plugin, and all problems of the tools that are left out.
fn tools_of<'a>(manifest: &Manifest, package: &'a Arc<Package>) -> Tools<'a> {
    let Some(entry) = &manifest.tools_entry else {
        return (Vec::new(), Vec::new());
    };
    let prefix = format!("{entry}/");
    let files = package.files().iter();
    let definitions: Vec<&PackageFile> = files
        .filter(|file| file.path.starts_with(&prefix) && file.path.ends_with(".tool.json"))
        .collect();
    let mut tools: Vec<(Definition, &str)> = Vec::new();
    let mut wrong = Vec::new();
    if definitions.is_empty() {
        let message = format!("there is no *.tool.json in '{entry}'; add one or remove 'tools'");
        wrong.push(Violation::new(
            "plugin.yaml/tools/entry",
            "no_tools",
            message,
        ));
    }
    for file in definitions {
        match read_tool(file, package) {
            Ok(tool) if tools.iter().any(|(other, _)| other.id == tool.id) => {
                let message = format!("the id '{}' is given twice; change one", tool.id);
                wrong.push(Violation::new(file.path.clone(), "id_taken", message));
            }
            Ok(tool) => tools.push((tool, file.path.as_str())),
            Err(mut violations) => {
                for violation in &mut violations {
                    violation.pointer.insert_str(0, &file.path);
                }
                wrong.append(&mut violations);
            }
        }
    }
    (tools, wrong)
}

fn read_tool(file: &PackageFile, package: &Arc<Package>) -> Result<Definition, Vec<Violation>> {
    let text = text_file::decode(file.content.clone());
    let text =
        text.map_err(|error| vec![Violation::new("", "malformed_json", error.to_string())])?;
    let mut read = definition::read(&text)?;
    let found = std::mem::take(&mut read.diagnostics).into_iter();
    read.diagnostics = found.map(|each| each.in_file(&file.path)).collect();
    if let Implementation::Script(program) = &read.implementation
        && !package
            .files()
            .iter()
            .any(|file| file.path == program.entry)
    {
        let paths = package.files().iter().map(|file| file.path.as_str());
        let mut violation = Violation::new(
            "",
            "script_not_found",
            format!("its script '{}' is not a file of the plugin", program.entry),
        );
        violation.suggestions = json_schema::nearest_names(&program.entry, paths);
        return Err(vec![violation]);
    }
    read.package = Some(Arc::clone(package));
    Ok(read)
}
