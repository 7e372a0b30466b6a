//! Files and folders of one crate that import each other in a loop.
//!
//! A file imports another where it names something that the other defines, also through a
//! re-export. A module may name definitions of the modules above it: so one type is spread over
//! several files, and such an import does not count.

use std::collections::{BTreeMap, BTreeSet};

use petgraph::graphmap::DiGraphMap;

use crate::rust_text::{code_only, word_at};
use crate::{Finding, Tree};

/// The most re-exports that are followed to a definition.
const MAX_REEXPORTS: usize = 5;

/// The words before the name of a definition.
const DEFINING: [&str; 8] = [
    "struct", "enum", "union", "trait", "fn", "type", "const", "static",
];

type Module = Vec<String>;

/// One crate: the code of its modules, and the paths that each imports.
#[derive(Default)]
struct Crate {
    modules: BTreeMap<Module, Source>,
}

struct Source {
    file: String,
    code: String,
    /// The paths of `use` items, one per name.
    imports: Vec<Vec<String>>,
}

/// Finds the files of every crate that import each other in a loop.
pub fn of_files(tree: &Tree) -> Vec<Finding> {
    read(tree).values().flat_map(Crate::circles).collect()
}

/// Finds the modules of every crate that import each other in a loop, each with all modules beneath
/// it.
pub fn of_folders(tree: &Tree) -> Vec<Finding> {
    let crates = read(tree);
    let found = crates
        .iter()
        .flat_map(|(root, own)| own.folder_circles(root));
    found.collect()
}

fn read(tree: &Tree) -> BTreeMap<&str, Crate> {
    let mut crates: BTreeMap<&str, Crate> = BTreeMap::new();
    for (path, text) in tree.texts(&[".rs"]) {
        let Some((root, file)) = path.split_once("/src/") else {
            continue;
        };
        if file.contains("tests/") || file.ends_with("tests.rs") || file.starts_with("bin/") {
            continue;
        }
        let product = text.split("#[cfg(test)]\nmod ").next().unwrap_or(text);
        let code = code_only(product);
        let source = Source {
            file: path.to_owned(),
            imports: imports(&code),
            code,
        };
        let modules = &mut crates.entry(root).or_default().modules;
        modules.insert(module_of(file), source);
    }
    crates
}

fn module_of(file: &str) -> Module {
    match file.trim_end_matches(".rs") {
        "lib" | "main" => Vec::new(),
        path => path.split('/').map(str::to_owned).collect(),
    }
}

impl Crate {
    fn circles(&self) -> Vec<Finding> {
        let edges: Vec<(&Module, &Module)> = self.edges().into_iter().collect();
        let mut graph = DiGraphMap::<&Module, ()>::new();
        for (from, to) in edges {
            graph.add_edge(from, to, ());
        }
        let loops = petgraph::algo::tarjan_scc(&graph);
        let circles = loops.into_iter().filter(|files| files.len() > 1);
        circles
            .map(|files| {
                let mut names: Vec<&str> = files
                    .iter()
                    .map(|module| self.modules[*module].file.as_str())
                    .collect();
                names.sort_unstable();
                Finding::new(
                    names[0],
                    format!("files import each other in a loop: {}", names.join(", ")),
                    "move what several of them name to a file of its own, below them",
                )
            })
            .collect()
    }

    /// Finds loops between modules of one parent, where an import of a file counts for the module that it is
    /// beneath.
    fn folder_circles(&self, root: &str) -> Vec<Finding> {
        let mut graph = DiGraphMap::<&[String], Vec<String>>::new();
        for (from, to) in self.edges() {
            let shared = from.iter().zip(to).take_while(|(a, b)| a == b).count();
            if from.len() == shared || to.len() == shared {
                continue;
            }
            let (one, other) = (&from[..=shared], &to[..=shared]);
            let import = format!("{} uses {}", from.join("::"), to.join("::"));
            match graph.edge_weight_mut(one, other) {
                Some(imports) => imports.push(import),
                None => {
                    graph.add_edge(one, other, vec![import]);
                }
            }
        }
        let loops = petgraph::algo::tarjan_scc(&graph);
        let circles = loops.into_iter().filter(|folders| folders.len() > 1);
        circles
            .map(|folders| {
                let within = graph
                    .all_edges()
                    .filter(|(from, to, _)| folders.contains(from) && folders.contains(to));
                let mut imports: Vec<&str> = within
                    .flat_map(|(_, _, imports)| imports.iter().map(String::as_str))
                    .collect();
                imports.sort_unstable();
                Finding::new(
                    root,
                    format!("modules import each other in a loop: {}", imports.join(", ")),
                    "move what both name to a module of its own beside them, or into the one that is used",
                )
            })
            .collect()
    }

    /// The imports between modules, except imports of modules above.
    fn edges(&self) -> BTreeSet<(&Module, &Module)> {
        let mut edges = BTreeSet::new();
        for (module, source) in &self.modules {
            let inline = inline_paths(&source.code);
            for path in source.imports.iter().chain(&inline) {
                if let Some(target) = self.defining(module, path, MAX_REEXPORTS)
                    && !module.starts_with(target)
                {
                    edges.insert((module, target));
                }
            }
        }
        edges
    }

    /// The module that defines the target of a path.
    fn defining(&self, from: &Module, path: &[String], reexports: usize) -> Option<&Module> {
        let path = self.absolute(from, path)?;
        let (target, rest) = (0..=path.len()).rev().find_map(|length| {
            let (target, _) = self.modules.get_key_value(&path[..length])?;
            Some((target, &path[length..]))
        })?;
        let Some(name) = rest.first() else {
            return Some(target);
        };
        let source = &self.modules[target];
        if defines(&source.code, name) {
            return Some(target);
        }
        let reexport = source
            .imports
            .iter()
            .find(|import| import.last() == Some(name))?;
        self.defining(target, reexport, reexports.checked_sub(1)?)
    }

    /// A path from the root of the crate; `None` for a path of another crate.
    fn absolute(&self, from: &Module, path: &[String]) -> Option<Module> {
        let mut base = from.clone();
        let mut rest = path;
        match path.first()?.as_str() {
            "crate" => base.clear(),
            "self" | "super" => {
                while rest.first().is_some_and(|first| first == "super") {
                    base.pop()?;
                    rest = &rest[1..];
                }
                base.extend(rest.iter().skip_while(|first| *first == "self").cloned());
                return Some(base);
            }
            child => {
                base.push(child.to_owned());
                self.modules.get(&base)?;
            }
        }
        base.extend(rest[1..].iter().cloned());
        Some(base)
    }
}

fn defines(code: &str, name: &str) -> bool {
    DEFINING.iter().any(|word| {
        let definition = format!("{word} {name}");
        word_at(code, &definition).is_some()
    })
}

/// The paths of all `use` items, one per name.
fn imports(code: &str) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    let mut rest = code;
    while let Some(at) = word_at(rest, "use") {
        let item = &rest[at + "use".len()..];
        let end = item.find(';').unwrap_or(item.len());
        expand(&item[..end], &[], &mut paths);
        rest = &item[end..];
    }
    paths
}

/// Expands the braces of a `use` item.
fn expand(tree: &str, prefix: &[String], paths: &mut Vec<Vec<String>>) {
    let (head, group) = match tree.split_once('{') {
        Some((head, group)) => (head, Some(group)),
        None => (tree, None),
    };
    let mut path = prefix.to_vec();
    path.extend(segments(head));
    let Some(group) = group else {
        paths.push(path);
        return;
    };
    let (mut depth, mut start) = (0_usize, 0);
    for (at, character) in group.char_indices() {
        match character {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' if depth == 0 => {
                expand(&group[start..at], &path, paths);
                start = at + 1;
            }
            '}' => {
                expand(&group[start..at], &path, paths);
                return;
            }
            _ => {}
        }
    }
}

/// The names of a path, without an alias behind `as`.
fn segments(path: &str) -> Vec<String> {
    let path = path.split(" as ").next().unwrap_or(path);
    let names = path.split("::").map(str::trim);
    names
        .filter(|name| !name.is_empty() && *name != "*")
        .map(str::to_owned)
        .collect()
}

/// Paths from the crate's root in the code itself, outside of imports.
fn inline_paths(code: &str) -> Vec<Vec<String>> {
    let starts = ["crate::", "super::"].into_iter();
    starts
        .flat_map(|start| code.match_indices(start).map(|(at, _)| at))
        .map(|at| {
            let of_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
            let rest = &code[at..];
            segments(&rest[..rest.find(|c| !of_path(c)).unwrap_or(rest.len())])
        })
        .collect()
}
