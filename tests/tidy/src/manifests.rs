//! The common form of manifests.

use toml::{Table, Value};

use crate::{Finding, Tree};

/// Package fields that come from the workspace.
const INHERITED: [&str; 5] = ["version", "edition", "rust-version", "license", "publish"];

/// Tables that name dependencies.
pub(crate) const DEPENDENCY_TABLES: [&str; 3] =
    ["dependencies", "dev-dependencies", "build-dependencies"];

/// The beginning of the source of a package from a registry, and not from a git repository.
const REGISTRY: &str = "registry+";

/// Checks the manifest of every crate for the common form.
pub fn fields(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for root in tree.crates() {
        let path = format!("{root}/Cargo.toml");
        let Some(manifest) = read(tree, &path) else {
            findings.push(Finding::new(
                path,
                "is not readable TOML",
                "correct its syntax",
            ));
            continue;
        };
        if manifest.contains_key("workspace") {
            // A workspace of its own, such as the fuzz targets', inherits no fields.
            continue;
        }
        check_package(&path, &root, &manifest, &mut findings);
        check_dependencies(&path, &manifest, &mut findings);
    }
    findings
}

fn check_package(path: &str, root: &str, manifest: &Table, findings: &mut Vec<Finding>) {
    let mut find =
        |problem: String, remedy: String| findings.push(Finding::new(path, problem, remedy));
    let empty = Table::new();
    let package = manifest
        .get("package")
        .and_then(Value::as_table)
        .unwrap_or(&empty);
    let name = package.get("name").and_then(Value::as_str);
    if let Err(wanted) = check_name(root, name.unwrap_or_default()) {
        find(
            "the package is not named after its directory".to_owned(),
            format!("set `name = \"{wanted}\"`"),
        );
    }
    let description = package
        .get("description")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if description.is_empty() || description.contains('\n') || !description.ends_with('.') {
        find(
            "the description is missing or not one sentence".to_owned(),
            "set `description` to one line that ends with a full stop".to_owned(),
        );
    }
    for field in INHERITED {
        if !inherits(package.get(field)) {
            find(
                format!("`{field}` is not inherited"),
                format!("write `{field}.workspace = true`"),
            );
        }
    }
    if !inherits(manifest.get("lints")) {
        find(
            "the workspace's lints do not apply".to_owned(),
            "add `[lints]` with `workspace = true`".to_owned(),
        );
    }
}

/// Checks the name of a crate: the name of its directory, for the part `service` the name of the
/// service, and for its other parts also a longer name that ends in the directory's name.
fn check_name(root: &str, name: &str) -> Result<(), String> {
    let parts: Vec<&str> = root.split('/').collect();
    let (wanted, alone) = match parts[..] {
        ["services", service, "service"] => (service, true),
        ["services", _, part] => (part, false),
        [.., directory] => (directory, true),
        [] => return Ok(()),
    };
    let longer = name
        .strip_suffix(wanted)
        .is_some_and(|rest| rest.ends_with('-'));
    match name == wanted || (!alone && longer) {
        true => Ok(()),
        false if alone => Err(wanted.to_owned()),
        false => Err(format!("…-{wanted}")),
    }
}

fn check_dependencies(path: &str, manifest: &Table, findings: &mut Vec<Finding>) {
    for table in DEPENDENCY_TABLES {
        for (name, dependency) in manifest
            .get(table)
            .and_then(Value::as_table)
            .into_iter()
            .flatten()
        {
            if !inherits(Some(dependency)) {
                findings.push(Finding::new(
                    path,
                    format!("the version of `{name}` is not inherited"),
                    format!("put `{name}` into `[workspace.dependencies]` at the root and write `{name}.workspace = true`"),
                ));
            }
        }
    }
}

fn inherits(value: Option<&Value>) -> bool {
    value
        .and_then(|value| value.get("workspace"))
        .and_then(Value::as_bool)
        == Some(true)
}

/// Refuses packages from anywhere but the public registry.
pub fn lock_file_sources(tree: &Tree) -> Vec<Finding> {
    let lock = read(tree, "Cargo.lock").unwrap_or_default();
    let packages = lock
        .get("package")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    packages
        .filter(|package| {
            package
                .get("source")
                .and_then(Value::as_str)
                .is_some_and(|source| !source.starts_with(REGISTRY))
        })
        .map(|package| {
            let name = package
                .get("name")
                .and_then(Value::as_str)
                .unwrap_or_default();
            Finding::new(
                "Cargo.lock",
                format!("`{name}` does not come from the public registry"),
                "depend on a published version",
            )
        })
        .collect()
}

/// Requires an exact version of every Python package that the tests install.
pub fn python_requirements(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts(&["requirements.txt"]) {
        for (index, line) in text.lines().enumerate() {
            let requirement = line.split('#').next().unwrap_or_default().trim();
            if !requirement.is_empty() && !requirement.contains("==") {
                let finding = Finding::new(
                    path,
                    format!("`{requirement}` is not pinned"),
                    "name one version with `==`",
                );
                findings.push(finding.at_line(index + 1));
            }
        }
    }
    findings
}

/// Parses a TOML file of the tree.
pub(crate) fn read(tree: &Tree, path: &str) -> Option<Table> {
    tree.text(path)?.parse().ok()
}
