//! The lengths of files, and the names of types: a crate has one type of each name.
//!
//! The length of functions is a lint of clippy.

use std::collections::BTreeMap;

use crate::rust_text::code_only;
use crate::{Finding, Tree};

/// Lines of one source file.
const LONGEST_FILE: usize = 600;

/// Names that are clear in any module: the shared state of a handle, and the commands of a command
/// line.
const IN_MANY: [&str; 2] = ["Inner", "Command"];

/// Refuses source files that are too long to read.
pub fn files(tree: &Tree) -> Vec<Finding> {
    tree.texts(&[".rs", ".py", ".proto"])
        .map(|(path, text)| (path, text.lines().count()))
        .filter(|(_, lines)| *lines > LONGEST_FILE)
        .map(|(path, lines)| {
            Finding::new(
                path,
                format!("has {lines} lines, more than {LONGEST_FILE}"),
                "split it by concern: `name.rs` beside `name/`, one file per member of a family, tests in `name/tests.rs`",
            )
        })
        .collect()
}

/// Refuses a type name that is defined in two files of a crate, as a reader cannot know which one
/// is meant.
pub fn type_names(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for root in tree.crates() {
        let mut first = BTreeMap::new();
        for (path, name) in types_of(tree, &root) {
            if IN_MANY.contains(&name.as_str()) {
                continue;
            }
            let other = *first.entry(name.clone()).or_insert(path);
            if other != path {
                let problem = format!("defines the type `{name}`, as {other} does");
                let remedy = "give one of them a name that says what sets it apart";
                findings.push(Finding::new(path, problem, remedy));
            }
        }
    }
    findings
}

/// Returns the types that the sources of a crate define, each with its file, without types of
/// tests.
fn types_of<'a>(tree: &'a Tree, root: &str) -> impl Iterator<Item = (&'a str, String)> + use<'a> {
    let sources = format!("{root}/src/");
    tree.texts(&[".rs"])
        .filter(move |(path, _)| path.starts_with(&sources) && !is_of_tests(path))
        .flat_map(|(path, text)| {
            let names = defined_types(&code_only(text));
            names.into_iter().map(move |name| (path, name))
        })
}

fn is_of_tests(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/")
}

/// Returns the names of the types that code without comments and literals defines, up to a test
/// module at the end of the file.
fn defined_types(code: &str) -> Vec<String> {
    let kinds = ["struct", "enum", "trait", "union"];
    let (mut types, mut of_tests) = (Vec::new(), false);
    for line in code.lines() {
        if of_tests && line.starts_with("mod ") && line.ends_with('{') {
            break;
        }
        of_tests = line == "#[cfg(test)]";
        let line = line.trim_start();
        let item = match line.strip_prefix("pub(") {
            Some(scoped) => scoped.split_once(')').map_or("", |(_, item)| item),
            None => line.strip_prefix("pub ").unwrap_or(line),
        };
        let Some((kind, rest)) = item.trim_start().split_once(' ') else {
            continue;
        };
        let is_of_name = |c: &char| c.is_alphanumeric() || *c == '_';
        let name: String = rest.trim_start().chars().take_while(is_of_name).collect();
        if kinds.contains(&kind) && !name.is_empty() {
            types.push(name);
        }
    }
    types
}
