//! The allowed dependencies between crates, and the owners of shared crates.

use std::collections::{BTreeMap, BTreeSet};

use toml::Value;

use crate::manifests::{DEPENDENCY_TABLES, read};
use crate::{Finding, Tree};

/// The shared crates, from the bottom up, each with the lower crates that it may use.
#[rustfmt::skip] // one line per crate
const SHARED: [(&str, &[&str]); 31] = [
    ("contracts", &[]),
    ("core-types", &[]),
    ("json-schema", &[]),
    ("call-catalogue", &["json-schema"]),
    ("text-scan", &["call-catalogue"]),
    ("call-text", &["call-catalogue", "json-schema", "text-scan"]),
    ("call-prompt", &["call-catalogue", "call-text", "json-schema"]),
    ("canonical-json", &[]),
    ("cel-guard", &[]),
    ("approval-rules", &["cel-guard"]),
    ("package-lock", &[]),
    ("schedules", &["core-types"]),
    ("search-words", &[]),
    ("settings", &[]),
    ("call-outcome", &["canonical-json", "json-schema"]),
    ("node-file", &["call-outcome", "json-schema"]),
    ("proto-json", &["call-catalogue", "call-outcome", "json-schema"]),
    (
        "call-wire",
        &[
            "contracts", "core-types", "call-catalogue", "call-outcome", "call-prompt", "call-text",
            "json-schema",
        ],
    ),
    ("telemetry", &["settings"]),
    ("sql-store", &["core-types"]),
    ("server-files", &["core-types", "sql-store"]),
    ("membership", &["core-types", "sql-store"]),
    ("run-log", &["core-types", "sql-store", "membership"]),
    ("grpc-kit", &["contracts", "core-types", "telemetry", "settings"]),
    ("tenancy", &["contracts", "core-types", "grpc-kit"]),
    (
        "run-events",
        &[
            "contracts", "core-types", "json-schema", "sql-store", "run-log", "telemetry", "settings",
            "grpc-kit", "tenancy",
        ],
    ),
    (
        "documents",
        &[
            "contracts", "core-types", "settings", "sql-store", "run-log", "grpc-kit", "run-events",
        ],
    ),
    (
        "data-home",
        &[
            "core-types", "settings", "sql-store", "server-files", "membership", "run-log", "grpc-kit",
            "documents",
        ],
    ),
    ("plugin-client", &["contracts", "grpc-kit"]),
    ("script-client", &["contracts", "grpc-kit", "run-events"]),
    (
        "run-client",
        &[
            "contracts", "core-types", "sql-store", "run-log", "grpc-kit", "run-events",
        ],
    ),
];

/// The services of several crates, each with its parts from the bottom up; a part may use the parts before it.
const PARTS: [(&str, &[&str]); 4] = [
    (
        "agent-runtime",
        &["domain", "model-client", "turn-log", "store", "service"],
    ),
    (
        "script-sandbox",
        &[
            "blob-store",
            "protocol",
            "launcher",
            "engine",
            "package-builder",
            "service",
        ],
    ),
    (
        "tool-registry",
        &[
            "domain",
            "hook-chain",
            "plugin-package",
            "workspace-store",
            "service",
        ],
    ),
    (
        "workflow-execution",
        &["domain", "nodes", "runner", "service"],
    ),
];

/// The program that links every service, and owns none of the shared crates.
const ALL_IN_ONE: &str = "all-in-one";

/// The command line, which is a client.
const CLI: &str = "cli";

/// The crates that the command line may use: the contract, and the client stack with its settings.
const OF_CLIENTS: [&str; 4] = ["contracts", "core-types", "grpc-kit", "settings"];

/// Shared crates that only some services link, because they read or write the text dialects.
const OF_CALLS: [&str; 4] = ["call-catalogue", "call-prompt", "call-text", "call-wire"];

/// The services that may link them.
const READS_CALLS: [&str; 4] = [
    "gateway",
    "agent-runtime",
    "workflow-execution",
    "tool-registry",
];

/// The place of a crate in the tree.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place<'a> {
    Shared(&'a str),
    /// A service, and the part of it where it has several.
    Service(&'a str, Option<&'a str>),
    Tests(&'a str),
}

impl<'a> Place<'a> {
    fn of(root: &'a str) -> Option<Self> {
        match root.split('/').collect::<Vec<_>>()[..] {
            ["shared", name] => Some(Self::Shared(name)),
            ["services", service] => Some(Self::Service(service, None)),
            ["services", service, part] => Some(Self::Service(service, Some(part))),
            ["tests", name] => Some(Self::Tests(name)),
            _ => None,
        }
    }
}

/// The crates of the workspace by name, with their directories and manifests.
struct Workspace {
    crates: BTreeMap<String, (String, toml::Table)>,
}

impl Workspace {
    fn read(tree: &Tree) -> Self {
        let crates = tree.crates().into_iter().filter_map(|root| {
            let manifest = read(tree, &format!("{root}/Cargo.toml"))?;
            let name = manifest.get("package")?.get("name")?.as_str()?.to_owned();
            Some((name, (root, manifest)))
        });
        Self {
            crates: crates.collect(),
        }
    }

    fn place(&self, name: &str) -> Option<Place<'_>> {
        Place::of(&self.crates.get(name)?.0)
    }

    /// Returns the crates of the workspace that a table of a crate names.
    fn dependencies<'a>(&'a self, name: &str, table: &str) -> impl Iterator<Item = &'a str> {
        let manifest = self.crates.get(name).map(|(_, manifest)| manifest);
        let table = manifest
            .and_then(|manifest| manifest.get(table))
            .and_then(Value::as_table);
        let names = table.into_iter().flat_map(toml::Table::keys);
        names
            .map(String::as_str)
            .filter(|name| self.crates.contains_key(*name))
    }

    /// Returns every crate that a program of `name` links.
    fn linked(&self, name: &str) -> BTreeSet<&str> {
        let mut linked = BTreeSet::new();
        let mut open: Vec<&str> = self.dependencies(name, "dependencies").collect();
        while let Some(next) = open.pop() {
            if linked.insert(next) {
                open.extend(self.dependencies(next, "dependencies"));
            }
        }
        linked
    }
}

/// Checks every dependency within the workspace for an allowed edge.
pub fn between_crates(tree: &Tree) -> Vec<Finding> {
    let workspace = Workspace::read(tree);
    let mut findings = Vec::new();
    for (name, (root, _)) in &workspace.crates {
        let Some(place) = Place::of(root) else {
            continue;
        };
        let path = format!("{root}/Cargo.toml");
        if let Some((problem, remedy)) = unknown(place) {
            findings.push(Finding::new(&path, problem, remedy));
            continue;
        }
        for table in DEPENDENCY_TABLES {
            for dependency in workspace.dependencies(name, table) {
                let Some(target) = workspace.place(dependency) else {
                    continue;
                };
                if let Some(remedy) = refuse(place, target, table) {
                    findings.push(Finding::new(
                        &path,
                        format!("`{name}` must not depend on `{dependency}`"),
                        remedy,
                    ));
                }
            }
        }
    }
    findings
}

/// Refuses a shared crate that fewer than two services link: it belongs to the service that does.
/// Programs that are no service own no crate.
pub fn owners(tree: &Tree) -> Vec<Finding> {
    let workspace = Workspace::read(tree);
    let mut owners: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (name, (root, _)) in &workspace.crates {
        match Place::of(root) {
            Some(Place::Service(service, _)) if ![ALL_IN_ONE, CLI].contains(&service) => {
                for linked in workspace.linked(name) {
                    owners.entry(linked).or_default().insert(service);
                }
            }
            _ => {}
        }
    }
    let shared = workspace.crates.iter().filter_map(|(name, (root, _))| {
        matches!(Place::of(root), Some(Place::Shared(_))).then_some((name, root))
    });
    let alone = shared.filter_map(|(name, root)| {
        let services = owners.get(name.as_str()).cloned().unwrap_or_default();
        let remedy = match services.first() {
            Some(service) if services.len() == 1 => {
                format!("move it to `services/{service}/`, whose part it is")
            }
            None => "remove it, or move it to `tests/`".to_owned(),
            Some(_) => return None,
        };
        let problem = format!("the shared crate `{name}` has {} owners", services.len());
        Some(Finding::new(root, problem, remedy))
    });
    alone.collect()
}

/// Returns the problem of a crate that has no place in the layers, and its remedy.
fn unknown(place: Place<'_>) -> Option<(String, &'static str)> {
    match place {
        Place::Shared(name) if !SHARED.iter().any(|(known, _)| *known == name) => Some((
            format!("the shared crate `{name}` has no place in the layers"),
            "add it with its allowed edges to `SHARED` in tests/tidy/src/edges.rs and to ARCHITECTURE.md",
        )),
        Place::Service(service, Some(part)) if !parts_of(service).contains(&part) => Some((
            format!("`{service}` has no part `{part}`"),
            "add it to `PARTS` in tests/tidy/src/edges.rs, above the parts that it uses, and to ARCHITECTURE.md",
        )),
        _ => None,
    }
}

fn parts_of(service: &str) -> &'static [&'static str] {
    let found = PARTS.iter().find(|(known, _)| *known == service);
    found.map_or(&[], |(_, parts)| parts)
}

/// Returns the remedy for an edge of a table of dependencies that is not allowed.
fn refuse(from: Place<'_>, to: Place<'_>, table: &str) -> Option<String> {
    let is_for_tests = table == "dev-dependencies";
    let across = "services meet over gRPC: call it through its client, or move what both need into `shared/`; only all-in-one and tests link services, the tests of a service as development dependencies";
    match (from, to) {
        (Place::Tests(_), _) => None,
        // Where a neighbour decides something, the tests of a service meet the real one.
        (Place::Service(..), Place::Service(..) | Place::Tests("doubles")) if is_for_tests => None,
        // Stores are tested on a real server.
        (_, Place::Tests("postgres-kit")) if is_for_tests => None,
        (_, Place::Tests(_)) => Some(
            "tests depend on crates, never the other way; move the test to `tests/e2e`. Tests of a service may use `doubles`, and all tests `postgres-kit`, as a development dependency"
                .to_owned(),
        ),
        (Place::Shared(name), Place::Shared(dependency)) => below(name, dependency),
        (Place::Shared(_), Place::Service(..)) => Some(
            "a shared crate knows no service; move the code into the service, or what both need into `shared/`"
                .to_owned(),
        ),
        (Place::Service(CLI, _), Place::Shared(dependency)) => {
            (!OF_CLIENTS.contains(&dependency)).then(|| {
                format!(
                    "the command line is a client that builds and ships alone, of {}; ask the gateway over gRPC, or move the code into the contract's crate",
                    OF_CLIENTS.join(", ")
                )
            })
        }
        (Place::Service(service, _), Place::Shared(dependency)) => {
            let reads = READS_CALLS.contains(&service) || service == ALL_IN_ONE;
            let refused = OF_CALLS.contains(&dependency) && !reads;
            refused.then(|| {
                format!(
                    "only {} read the text dialects; ask the gateway over gRPC",
                    READS_CALLS.join(", ")
                )
            })
        }
        (Place::Service(ALL_IN_ONE, _), Place::Service(..)) => None,
        (Place::Service(service, Some(part)), Place::Service(other, Some(used)))
            if service == other =>
        {
            let parts = parts_of(service);
            let floor = |part: &str| parts.iter().position(|known| *known == part);
            let refused = floor(used) >= floor(part);
            refused.then(|| {
                format!(
                    "a part uses the parts below it ({} from the bottom up); pass a value or a trait in, or move the code",
                    parts.join(", ")
                )
            })
        }
        (Place::Service(..), Place::Service(..)) => Some(across.to_owned()),
    }
}

fn below(name: &str, dependency: &str) -> Option<String> {
    let found = SHARED.iter().find(|(known, _)| *known == name);
    let below = found.map_or(&[][..], |(_, below)| below);
    if below.contains(&dependency) {
        return None;
    }
    let listed = match below.is_empty() {
        true => "none".to_owned(),
        false => below.join(", "),
    };
    Some(format!(
        "a shared crate uses only shared crates below it (for `{name}`: {listed}); pass a value or a trait in, or move the code"
    ))
}
