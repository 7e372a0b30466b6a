//! Environment variables that look like settings but are not.

use std::ffi::OsString;

use crate::problem::{Problem, Source};

/// The prefixes of the programs' settings.
const PROGRAMS: [&str; 6] = [
    "TAVERN",
    "TAVERN_AGENT",
    "TAVERN_GATEWAY",
    "TAVERN_REGISTRY",
    "TAVERN_SANDBOX",
    "TAVERN_WORKFLOW",
];

/// The prefixes of variables that only the repository's own tests read.
const TESTS: [&str; 2] = ["TAVERN_TEST_", "TAVERN_RECORD_"];

/// The variables of the commands of `tavern` that connect to a server.
const OF_COMMANDS: [&str; 7] = [
    "TAVERN_ADDRESS",
    "TAVERN_APPROVER_KEY",
    "TAVERN_APPROVER_KEY_FILE",
    "TAVERN_CA",
    "TAVERN_KEY_FILE",
    "TAVERN_SERVER_NAME",
    "TAVERN_TOKEN_FILE",
];

/// Finds variables of the family that no program reads: a misspelt limit would not be in force. The
/// settings of other programs are left to them. `prefix` is the prefix of the present program.
pub(crate) fn find_unknown(
    prefix: &str,
    vars: &[(OsString, OsString)],
    problems: &mut Vec<Problem>,
) {
    let names = vars.iter().filter_map(|(name, _)| name.to_str());
    for name in names.filter(|name| name.starts_with("TAVERN_")) {
        let programs = || PROGRAMS.into_iter().chain([prefix]);
        let belongs = programs().any(|program| {
            name.strip_prefix(program)
                .is_some_and(|rest| rest == "_CONFIG" || rest.starts_with("__"))
        });
        let of_a_test = TESTS.iter().any(|test| name.starts_with(test));
        if belongs || of_a_test || OF_COMMANDS.contains(&name) || is_service_link(name) {
            continue;
        }
        let remedy = match suggestion(name, programs()) {
            Some(meant) => format!("use {meant}, or remove it"),
            None => format!(
                "remove it, or begin it with one of {}, followed by two underscores",
                PROGRAMS.join(", ")
            ),
        };
        problems.push(Problem {
            key: String::new(),
            source: Source::Environment(name.to_owned()),
            what: "is not a setting".to_owned(),
            remedy,
        });
    }
}

/// Whether a container platform has set the variable, to name a service with the name of a program.
fn is_service_link(name: &str) -> bool {
    let marks = ["_SERVICE_HOST", "_SERVICE_PORT", "_PORT"];
    !name.contains("__")
        && marks
            .iter()
            .any(|mark| name.ends_with(mark) || name.contains(&format!("{mark}_")))
}

/// Returns the name that was probably intended.
fn suggestion<'a>(name: &str, programs: impl Iterator<Item = &'a str> + Clone) -> Option<String> {
    if let Some((written, key)) = name.split_once("__") {
        let nearest = nearest(written, programs)?;
        return Some(format!("{nearest}__{key}"));
    }
    let split = programs
        .filter(|program| *program != "TAVERN")
        .filter_map(|program| Some((program, name.strip_prefix(program)?.strip_prefix('_')?)));
    let (program, key) = split.max_by_key(|(program, _)| program.len())?;
    Some(format!("{program}__{key}"))
}

/// Returns the candidate that differs from `written` in at most a third of its characters.
pub(crate) fn nearest<'a>(
    written: &str,
    candidates: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    let most = (written.chars().count() / 3).max(1);
    candidates
        .map(|candidate| (strsim::damerau_levenshtein(written, candidate), candidate))
        .filter(|(distance, _)| *distance <= most)
        .min()
        .map(|(_, candidate)| candidate)
}
