//! The words that a domain, a loop of runs, a service outside its store, or an owner of runs may not name.

use crate::rust_text::{code_only, word_at};
use crate::{Finding, Tree};

/// Crates whose names a domain module may not mention, nor names that begin with them.
const NOT_IN_DOMAIN: [&str; 6] = ["contracts", "call_wire", "tonic", "prost", "sqlx", "tokio"];

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

/// The requests by which calls are made, and runs of other services started, followed and ended.
const ERRANDS: [&str; 7] = [
    ".call_tool(",
    ".start_call(",
    ".cancel_call(",
    ".start_run(",
    ".start_turn(",
    ".watch_run(",
    ".cancel_run(",
];

/// The senders: the client of all owners, the gateway, which forwards the requests of its clients,
/// and the command line, where a person decides about another try.
const SENDS_ERRANDS: [&str; 4] = [
    "shared/run-client/",
    "services/gateway/",
    "services/all-in-one/",
    "services/cli/",
];

/// Keeps tries, graces and cancels of calls and child runs in one place: only its client sends them.
pub fn within_run_client(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    each_line(tree, is_owner_of_runs, |path, number, line| {
        if let Some(request) = ERRANDS.iter().find(|request| line.contains(**request)) {
            let name = request.trim_matches(['.', '(']);
            let finding = Finding::new(
                path,
                format!("an owner of runs sends `{name}` itself"),
                "use `CallClient`, `carry_out` or `ChildRun` of `shared/run-client`, whose policy of tries, graces and cancels holds for all owners",
            );
            findings.push(finding.at_line(number));
        }
    });
    findings
}

/// Whether a file belongs to the product and may not send the requests of calls and child runs.
fn is_owner_of_runs(path: &str) -> bool {
    let is_product = path.starts_with("shared/") || path.starts_with("services/");
    is_product
        && path.contains("/src/")
        && !path.ends_with("/tests.rs")
        && !SENDS_ERRANDS.iter().any(|sends| path.starts_with(sends))
}

/// The loops of runs and zones and the fold of their events, which are driven in simulated time as they ship.
const LOOPS: [&str; 4] = ["run_loop", "zone_loop", "run_state", "effect_end"];

/// Names by which a loop would do I/O, or depend on more than its arguments.
const NOT_IN_LOOPS: [&str; 9] = [
    "async", ".await", "tokio", "futures", "fastrand", "run_log", "Recorder", "Instant", ".now()",
];

/// Keeps I/O, the clock and random numbers out of the loops of runs, and the fold of events in one place.
pub fn within_loops(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    each_line(tree, is_loop, |path, number, line| {
        if let Some(name) = NOT_IN_LOOPS.iter().find(|name| line.contains(**name)) {
            let finding = Finding::new(
                path,
                format!("a loop of runs names `{name}`"),
                "return an action, and let its driver carry it out; take times and random numbers as arguments",
            );
            findings.push(finding.at_line(number));
        }
    });
    each_line(tree, may_not_fold, |path, number, line| {
        if line.contains(".apply(") {
            let finding = Finding::new(
                path,
                "a second place applies events to a run",
                "let the loop take what happened; `RunState::apply` is the only fold of events",
            );
            findings.push(finding.at_line(number));
        }
    });
    findings
}

/// Whether a file is of a loop of workflows, or folds the log of a turn.
fn is_loop(path: &str) -> bool {
    if path.starts_with("services/agent-runtime/turn-log/src/") {
        return true;
    }
    let file = path.strip_prefix("services/workflow-execution/runner/src/");
    let module = file.and_then(|file| file.split(['/', '.']).next());
    module.is_some_and(|module| LOOPS.contains(&module))
}

/// Whether a file executes runs or simulates that, and is no loop. A prediction runs no workflow.
fn may_not_fold(path: &str) -> bool {
    let folders = ["runner/src/", "service/src/", "service/tests/it/simulation"];
    let file = path.strip_prefix("services/workflow-execution/");
    file.is_some_and(|file| {
        let is_of_runs = folders.iter().any(|folder| file.starts_with(folder));
        is_of_runs && file != "runner/src/predict.rs" && !is_loop(path)
    })
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

/// Whether a file belongs to the pure part of a service: its crate `domain`, the node types, or a module `domain`.
fn in_domain(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    match parts[..] {
        ["services", _, "domain" | "nodes", "src", ..] => true,
        ["services", _, "src", top, ..] | ["services", _, "service" | "engine", "src", top, ..] => {
            top == "domain" || top == "domain.rs"
        }
        _ => false,
    }
}

/// Whether a file belongs to a service and not to its store.
fn outside_store(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    let top = match parts[..] {
        ["services", _, "src", top, ..] | ["services", _, "service", "src", top, ..] => top,
        _ => return false,
    };
    top != "store" && top != "store.rs"
}

/// Returns whether the line names the crate or a member of its family, such as `prost_types` for
/// `prost`.
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
