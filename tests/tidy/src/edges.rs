//! Which crate may depend on which, and what a domain or a store may name.

use toml::Value;

use crate::manifests::{DEPENDENCY_TABLES, read};
use crate::rust_text::{code_only, word_at};
use crate::{Finding, Tree};

/// The shared crates, from the bottom up, each with the ones below it that it may use.
#[rustfmt::skip] // one line per crate
const SHARED: [(&str, &[&str]); 30] = [
    ("contracts", &[]),
    ("core-types", &[]),
    ("json-schema", &[]),
    ("call-catalogue", &["json-schema"]),
    ("text-scan", &["call-catalogue"]),
    ("call-text", &["call-catalogue", "json-schema", "text-scan"]),
    ("call-prompt", &["call-catalogue", "call-text"]),
    ("canonical-json", &[]),
    ("cel-guard", &[]),
    ("approval-rules", &["cel-guard"]),
    ("schedules", &["core-types"]),
    ("settings", &[]),
    ("blob-store", &["settings"]),
    ("sandbox-engine", &["core-types", "settings", "blob-store"]),
    ("call-outcome", &["canonical-json", "json-schema"]),
    ("proto-json", &["call-catalogue", "call-outcome", "json-schema"]),
    (
        "call-wire",
        &[
            "contracts", "core-types", "call-catalogue", "call-outcome", "call-prompt", "call-text",
            "json-schema",
        ],
    ),
    (
        "agent-domain",
        &[
            "approval-rules", "call-catalogue", "call-outcome", "call-prompt", "call-text", "cel-guard",
            "core-types", "json-schema", "schedules",
        ],
    ),
    (
        "tool-domain",
        &[
            "approval-rules", "call-catalogue", "call-outcome", "call-prompt", "canonical-json", "core-types",
            "json-schema", "settings",
        ],
    ),
    ("telemetry", &["settings"]),
    ("model-client", &["agent-domain", "call-catalogue", "call-text", "settings", "telemetry"]),
    ("sql-store", &["core-types"]),
    ("run-log", &["core-types", "sql-store"]),
    ("grpc-kit", &["contracts", "core-types", "telemetry", "settings"]),
    (
        "run-events",
        &[
            "contracts", "core-types", "json-schema", "sql-store", "run-log", "telemetry", "settings",
            "grpc-kit",
        ],
    ),
    (
        "agent-store",
        &[
            "contracts", "core-types", "call-catalogue", "call-prompt", "call-text", "call-wire",
            "agent-domain", "settings", "sql-store", "run-log", "grpc-kit", "run-events",
        ],
    ),
    ("script-client", &["contracts", "grpc-kit", "run-events"]),
    (
        "workflow-domain",
        &[
            "core-types", "call-catalogue", "call-outcome", "call-text", "canonical-json", "cel-guard",
            "json-schema",
        ],
    ),
    (
        "workflow-nodes",
        &[
            "call-catalogue", "call-outcome", "call-prompt", "call-text", "cel-guard", "json-schema",
            "workflow-domain",
        ],
    ),
    (
        "workflow-runner",
        &[
            "contracts", "core-types", "call-catalogue", "call-outcome", "call-prompt", "call-wire",
            "json-schema", "sql-store", "run-log", "telemetry", "grpc-kit", "run-events", "script-client",
            "workflow-domain", "workflow-nodes",
        ],
    ),
];

/// Shared crates that only some services link, because they read or write the text dialects.
const OF_CALLS: [&str; 4] = ["call-catalogue", "call-prompt", "call-text", "call-wire"];

/// The services that may link them.
const READS_CALLS: [&str; 4] = [
    "gateway",
    "agent-runtime",
    "workflow-execution",
    "tool-registry",
];

/// Crates whose names a domain module may not mention, with those that begin with them.
const NOT_IN_DOMAIN: [&str; 6] = ["contracts", "call_wire", "tonic", "prost", "sqlx", "tokio"];

/// Holds every dependency within the workspace against the allowed edges.
pub fn between_crates(tree: &Tree) -> Vec<Finding> {
    let crates = tree.crates();
    let home = |name: &str| {
        crates.iter().find_map(|root| {
            let (layer, found) = root.split_once('/')?;
            (found == name).then_some(layer)
        })
    };
    let mut findings = Vec::new();
    for root in &crates {
        let Some((layer, name)) = root.split_once('/') else {
            continue;
        };
        let path = format!("{root}/Cargo.toml");
        if layer == "shared" && !SHARED.iter().any(|(known, _)| *known == name) {
            findings.push(Finding::new(
                &path,
                format!("the shared crate `{name}` has no place in the layers"),
                "add it with its allowed edges to `SHARED` in tests/tidy/src/edges.rs and to ARCHITECTURE.md",
            ));
            continue;
        }
        let manifest = read(tree, &path).unwrap_or_default();
        for table in DEPENDENCY_TABLES {
            for dependency in manifest
                .get(table)
                .and_then(Value::as_table)
                .into_iter()
                .flat_map(toml::Table::keys)
            {
                let Some(target) = home(dependency) else {
                    continue;
                };
                if let Some(remedy) = refuse((layer, name), (target, dependency), table) {
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

/// Returns how to do without an edge of a table of dependencies that is not allowed.
fn refuse(
    (layer, name): (&str, &str),
    (target, dependency): (&str, &str),
    table: &str,
) -> Option<String> {
    let is_for_tests = table == "dev-dependencies";
    let allowed = match (layer, target) {
        ("tests", _) => true,
        // Where a neighbour decides something, the tests of a service meet the real one.
        ("services", "services") if is_for_tests => true,
        ("services", "tests") if is_for_tests && dependency == "doubles" => true,
        (_, "tests") => {
            return Some(
                "tests depend on crates, never the other way; move the test to `tests/e2e`. Tests of a service may use `doubles`, as a development dependency"
                    .to_owned(),
            );
        }
        ("shared", "shared") => {
            let below = SHARED
                .iter()
                .find(|(known, _)| *known == name)
                .map_or(&[][..], |(_, below)| below);
            if below.contains(&dependency) {
                return None;
            }
            let listed = if below.is_empty() {
                "none".to_owned()
            } else {
                below.join(", ")
            };
            return Some(format!(
                "a shared crate uses only shared crates below it (for `{name}`: {listed}); pass a value or a trait in, or move the code"
            ));
        }
        // The engine starts the launcher and speaks its protocol.
        ("shared", "services") if (name, dependency) == ("sandbox-engine", "sandbox-launcher") => {
            true
        }
        ("shared", _) => {
            return Some("a shared crate knows no service; move the code into the service, or what both need into `shared/`".to_owned());
        }
        ("services", "shared") => {
            if OF_CALLS.contains(&dependency)
                && !READS_CALLS.contains(&name)
                && name != "all-in-one"
            {
                return Some(format!(
                    "only {} read the text dialects; ask the gateway over gRPC",
                    READS_CALLS.join(", ")
                ));
            }
            true
        }
        ("services", _) => {
            name == "all-in-one" || (name == "script-sandbox" && dependency == "sandbox-launcher")
        }
        _ => false,
    };
    (!allowed).then(|| {
        "services meet over gRPC: call it through its client, or move what both need into `shared/`; only all-in-one and tests link services, the tests of a service as development dependencies".to_owned()
    })
}

/// Keeps the wire, the database and the runtime out of the pure part of a service.
pub fn within_domain(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    each_line(tree, in_domain, |path, number, line| {
        if let Some(name) = NOT_IN_DOMAIN.iter().find(|name| names_crate(line, name)) {
            let finding = Finding::new(
                path,
                format!("a domain module names `{name}`"),
                "keep the domain pure: take plain values and return plain values; convert in `rpc/`, query in `store/`, wait in the runner",
            );
            findings.push(finding.at_line(number));
        }
        if word_at(line, "async").is_some() || line.contains(".await") {
            let finding = Finding::new(
                path,
                "a domain module is asynchronous",
                "return what is to be done, and let the runner do it and report back",
            );
            findings.push(finding.at_line(number));
        }
    });
    findings
}

/// Keeps SQL in one place of a service: only its store names `sqlx`.
pub fn within_store(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    each_line(tree, outside_store, |path, number, line| {
        if names_crate(line, "sqlx") {
            let finding = Finding::new(
                path,
                "a module outside the store names `sqlx`",
                "query in `src/store.rs` or `src/store/`, and call that from here",
            );
            findings.push(finding.at_line(number));
        }
    });
    findings
}

/// Calls `see` with each line of code, and its number from 1, of the Rust files whose path `is_meant`.
fn each_line(tree: &Tree, is_meant: fn(&str) -> bool, mut see: impl FnMut(&str, usize, &str)) {
    for (path, text) in tree.texts(&[".rs"]) {
        if is_meant(path) {
            for (index, line) in code_only(text).lines().enumerate() {
                see(path, index + 1, line);
            }
        }
    }
}

/// Whether a file belongs to the pure part of a service: a crate whose name ends in `-domain`, the node types,
/// or the module `domain` of the service itself.
fn in_domain(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    match parts[..] {
        ["shared", name, "src", ..] if name.ends_with("-domain") || name == "workflow-nodes" => {
            true
        }
        ["services", _, "src", top, ..] | ["shared", "sandbox-engine", "src", top, ..] => {
            top == "domain" || top == "domain.rs"
        }
        _ => false,
    }
}

/// Whether a file belongs to a service and not to its store.
fn outside_store(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    matches!(parts[..], ["services", _, "src", top, ..] if top != "store" && top != "store.rs")
}

/// Returns whether the line names the crate or one of its family, as `prost_types` is of `prost`.
fn names_crate(line: &str, name: &str) -> bool {
    let part_of_name = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(name).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let rest = line[at..].trim_start_matches(part_of_name);
        let word = &line[at..line.len() - rest.len()];
        let family = word == name
            || word
                .strip_prefix(name)
                .is_some_and(|tail| tail.starts_with('_'));
        !before.is_some_and(part_of_name)
            && family
            && (rest.starts_with("::") || line.trim_start().starts_with("use "))
    })
}
