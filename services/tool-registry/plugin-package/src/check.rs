//! The plugin of files, and the faults of its manifest and its tools.

use std::{collections::BTreeMap, sync::Arc};

use call_outcome::Violation;
use settings::text_file;
use tool_domain::{
    definition::{self, Definition, Implementation},
    manifest::{self, HookHandler, Manifest},
    package::{Package, PackageFile},
    permissions::{Permission, PermissionKind},
    plugin_node::{self, node_type_of},
    program::Program,
};

use crate::{MANIFEST, PluginFiles, PluginSet};

/// The end of the name of each definition of a tool.
const TOOL: &str = ".tool.json";

/// The directory below a script's working directory in which it finds the files of the conversation.
pub const WORKSPACE_DIRECTORY: &str = "workspace";

/// The directory in which it finds the files that the plugin keeps.
pub const STORAGE_DIRECTORY: &str = "storage";

/// A plugin whose manifest was read.
#[derive(Clone, Debug)]
pub struct Plugin {
    /// Its manifest.
    pub manifest: Manifest,
    /// Its tools, those of its node types included, each with the files that its scripts see.
    pub tools: Vec<Arc<Definition>>,
    /// The full types of its nodes, `<plugin>:<type>`.
    pub nodes: Vec<String>,
    /// The path of the definition of each tool, by id.
    pub definition_files: BTreeMap<String, String>,
    /// The package set that its scripts import by its dependencies; none without any.
    pub package_set: Option<Arc<PluginSet>>,
    /// The digest of all its files, assets included.
    pub digest: String,
}

/// The result of a check.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The plugin with the tools that have no fault; none if its manifest has one.
    pub plugin: Option<Plugin>,
    /// All violations of the manifest and of every tool. A pointer is the path of the file, followed by a JSON pointer
    /// into it.
    pub violations: Vec<Violation>,
}

/// Reads the manifest and every definition of a tool. Where the manifest has a fault and so names no directory of
/// tools, every `*.tool.json` of the plugin counts as one of its definitions.
pub fn check(files: &PluginFiles) -> Checked {
    let (manifest, mut violations) = match read_manifest(files.package()) {
        Ok(manifest) => (Some(manifest), Vec::new()),
        Err(violations) => (None, violations),
    };
    let mut package_set = None;
    if let Some(manifest) = &manifest {
        violations.extend(reserved(manifest, files.package()));
        violations.extend(hooks_of(manifest, files.package()));
        match PluginSet::of(manifest, files.package()) {
            Ok(set) => package_set = set.map(Arc::new),
            Err(wrong) => violations.extend(wrong),
        }
    }
    let mut found = tools_of(manifest.as_ref(), files.package());
    if let Some(manifest) = &manifest {
        let nodes = nodes_of(manifest, files.package(), &found.tools);
        found.tools.extend(nodes.tools);
        found.wrong.extend(nodes.wrong);
    }
    violations.extend(found.wrong);
    let full_types = found.tools.iter();
    let full_types = full_types.filter_map(|(tool, _)| node_type_of(tool.id.as_str()));
    let nodes = full_types.map(str::to_owned).collect();
    let paths = found.tools.iter();
    let paths = paths.map(|(tool, path)| (tool.id.to_string(), (*path).to_owned()));
    let definition_files = paths.collect();
    let plugin = manifest.map(|manifest| Plugin {
        manifest,
        tools: found
            .tools
            .into_iter()
            .map(|(tool, _)| Arc::new(tool))
            .collect(),
        nodes,
        definition_files,
        package_set,
        digest: files.digest().to_owned(),
    });
    Checked { plugin, violations }
}

/// Returns the violations of files in directories that scripts find filled.
fn reserved(manifest: &Manifest, package: &Package) -> Vec<Violation> {
    let mut found = Vec::new();
    for (kind, directory) in [
        (PermissionKind::Workspace, WORKSPACE_DIRECTORY),
        (PermissionKind::Storage, STORAGE_DIRECTORY),
    ] {
        let mut requests = manifest.permissions.iter();
        if !requests.any(|request| request.permission.kind() == kind) {
            continue;
        }
        let is_inside =
            |path: &str| path == directory || path.starts_with(&format!("{directory}/"));
        let paths = package.files().iter().map(|file| &file.path);
        for path in paths.filter(|path| is_inside(path)) {
            let message = format!(
                "'{directory}' is the place of other files while a script runs, by the permission {}; move the file",
                kind.prefix()
            );
            found.push(Violation::new(path.clone(), "path_reserved", message));
        }
    }
    found
}

/// Returns the violations of the programs that hooks name.
fn hooks_of(manifest: &Manifest, package: &Package) -> Vec<Violation> {
    let mut found = Vec::new();
    for (index, hook) in manifest.hooks.iter().enumerate() {
        if let HookHandler::Script(program) = &hook.handler
            && let Err(wrong) = check_program(program, package, Some(manifest), "")
        {
            let place = format!("{MANIFEST}/hooks/{index}/handler/command");
            found.extend(within(&place, wrong));
        }
    }
    found
}

fn read_manifest(package: &Package) -> Result<Manifest, Vec<Violation>> {
    let mut files = package.files().iter();
    let content = files
        .find(|file| file.path == MANIFEST)
        .map(|file| file.content.clone());
    let text = text_file::decode(content.unwrap_or_default()).map_err(|error| {
        let code = "malformed_yaml";
        vec![Violation::new(MANIFEST, code, error.to_string())]
    })?;
    manifest::read(&text).map_err(|violations| within(MANIFEST, violations))
}

/// Tools with the paths of their definitions, and all problems of other tools.
#[derive(Default)]
struct Tools<'a> {
    tools: Vec<(Definition, &'a str)>,
    wrong: Vec<Violation>,
}

impl<'a> Tools<'a> {
    /// Adds the tool of a definition, or the problems for which it is left out.
    fn add(&mut self, file: &'a PackageFile, read: Result<Definition, Vec<Violation>>) {
        match read {
            Ok(tool) if self.tools.iter().any(|(other, _)| other.id == tool.id) => {
                let id = tool.id.as_str();
                let name = node_type_of(id).unwrap_or(id);
                let message = format!("the id '{name}' is given twice; change one");
                let violation = Violation::new(file.path.clone(), "id_taken", message);
                self.wrong.push(violation);
            }
            Ok(tool) => self.tools.push((tool, file.path.as_str())),
            Err(violations) => self.wrong.extend(within(&file.path, violations)),
        }
    }
}

/// Returns the tools of a plugin, and all problems of the tools that are left out.
fn tools_of<'a>(manifest: Option<&Manifest>, package: &'a Arc<Package>) -> Tools<'a> {
    let prefix = match manifest.map(|manifest| &manifest.tools_entry) {
        Some(Some(entry)) => format!("{entry}/"),
        Some(None) => return Tools::default(),
        None => String::new(),
    };
    let files = package.files().iter();
    let definitions: Vec<&PackageFile> = files
        .filter(|file| file.path.starts_with(&prefix) && file.path.ends_with(TOOL))
        .collect();
    let mut found = Tools::default();
    if let (Some(entry), true) = (prefix.strip_suffix('/'), definitions.is_empty()) {
        let message = format!("there is no *{TOOL} in '{entry}'; add one or remove 'tools'");
        let place = format!("{MANIFEST}/tools/entry");
        found.wrong.push(Violation::new(place, "no_tools", message));
    }
    for file in definitions {
        found.add(file, read_tool(file, package, manifest));
    }
    found
}

/// Returns the text of a definition.
fn text_of(file: &PackageFile) -> Result<String, Vec<Violation>> {
    let text = text_file::decode(file.content.clone());
    text.map_err(|error| vec![Violation::new("", "malformed_json", error.to_string())])
}

fn read_tool(
    file: &PackageFile,
    package: &Arc<Package>,
    manifest: Option<&Manifest>,
) -> Result<Definition, Vec<Violation>> {
    let text = text_of(file)?;
    let mut read = definition::read(&text)?;
    let found = std::mem::take(&mut read.diagnostics).into_iter();
    read.diagnostics = found.map(|each| each.in_file(&file.path)).collect();
    if let Implementation::Script(program) = &read.implementation {
        check_program(program, package, manifest, "/implementation/packages")?;
    }
    read.package = Some(Arc::clone(package));
    Ok(read)
}

/// Refuses a program that is no file of the plugin, or has a package set that the manifest does not ask for; `packages`
/// is the place that names the set.
fn check_program(
    program: &Program,
    package: &Package,
    manifest: Option<&Manifest>,
    packages: &str,
) -> Result<(), Vec<Violation>> {
    let mut files = package.files().iter();
    if !files.any(|file| file.path == program.entry) {
        let paths = package.files().iter().map(|file| file.path.as_str());
        let message = format!("its script '{}' is not a file of the plugin", program.entry);
        let mut violation = Violation::new("", "script_not_found", message);
        violation.suggestions = json_schema::nearest_names(&program.entry, paths);
        return Err(vec![violation]);
    }
    let Some(manifest) = manifest else {
        return Ok(());
    };
    let set = &program.packages;
    let mut requests = manifest.permissions.iter();
    let is_it = |permission: &Permission| matches!(permission, Permission::Packages { set: named } if named == set);
    if set.is_empty() || requests.any(|request| is_it(&request.permission)) {
        return Ok(());
    }
    let message = format!(
        "it imports the package set '{set}'; add permissions.packages with it to {MANIFEST}"
    );
    Err(vec![Violation::new(
        packages,
        "permission_missing",
        message,
    )])
}

/// Returns the tools of the node types of a plugin, and all problems of the types that are left out.
fn nodes_of<'a>(
    manifest: &Manifest,
    package: &'a Arc<Package>,
    tools: &[(Definition, &str)],
) -> Tools<'a> {
    let mut found = Tools::default();
    let Some(entry) = &manifest.nodes_entry else {
        return found;
    };
    let beneath = format!("{entry}/");
    let files = package.files().iter();
    let files = files.filter(|file| file.path.starts_with(&beneath));
    let definitions = files.filter(|file| file.path.ends_with(node_file::EXTENSION));
    let tools: Vec<&Definition> = tools.iter().map(|(tool, _)| tool).collect();
    for file in definitions {
        found.add(file, read_node(file, (manifest, package), &tools));
    }
    found
}

fn read_node(
    file: &PackageFile,
    (manifest, package): (&Manifest, &Arc<Package>),
    tools: &[&Definition],
) -> Result<Definition, Vec<Violation>> {
    let text = text_of(file)?;
    let plugin = manifest.name.as_str();
    let node = node_file::read(&text, plugin)?;
    let tool = plugin_node::tool_of((plugin, package), (&node, &text), tools)?;
    if let Implementation::Script(program) = &tool.implementation {
        check_program(program, package, Some(manifest), "/handler/packages")?;
    }
    Ok(tool)
}

/// Sets violations of a file in its place.
fn within(path: &str, mut violations: Vec<Violation>) -> Vec<Violation> {
    for violation in &mut violations {
        violation.pointer.insert_str(0, path);
    }
    violations
}
