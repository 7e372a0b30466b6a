//! Words that no file may contain.

use crate::rust_text::code_only;
use crate::{Finding, Tree};

/// Files that are read for words.
const TEXTS: [&str; 20] = [
    ".rs",
    ".py",
    ".proto",
    ".md",
    ".toml",
    ".yml",
    ".yaml",
    ".json",
    ".sh",
    ".js",
    ".sql",
    ".txt",
    "Makefile",
    "Dockerfile",
    ".ci/run",
    ".gitignore",
    ".dockerignore",
    ".editorconfig",
    ".env",
    ".xml",
];

/// This crate names the forbidden words.
const SELF: &str = "tests/tidy/";

/// Marks of work left undone, in code.
const UNFINISHED: [(&str, &str); 4] = [
    ("todo!", "do it now, or leave the feature out"),
    ("unimplemented!", "do it now, or leave the feature out"),
    (
        "#[ignore",
        "make the test run everywhere, or assert today's behaviour and say so",
    ),
    (
        "fn test_",
        "let the test's name state a fact, without the prefix",
    ),
];

/// Files that are read for marks of unfinished work; examples and model texts may speak of such.
const CODE: [&str; 10] = [
    ".rs",
    ".py",
    ".proto",
    ".toml",
    ".sh",
    ".js",
    ".sql",
    "Makefile",
    "Dockerfile",
    ".ci/run",
];

/// Marks of work left undone, in comments too.
const PROMISES: [&str; 4] = ["FIXME", "XXX", "TODO:", "TODO("];

/// Places that exist on one machine only.
const MACHINE_PATHS: [&str; 5] = [
    "/work/main",
    "/work/shared",
    "/work/.library",
    "/tmp/team",
    "/root/.",
];

/// Talk about the origin of the text; it does not belong in the project.
const TALK: [&str; 8] = [
    "earlier session",
    "later session",
    "helper session",
    "later issue",
    "next issue",
    "this issue",
    "co-authored-by",
    "claude code",
];

/// Refuses marks of unfinished work.
pub fn unfinished(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree
        .texts(&CODE)
        .filter(|(path, _)| !path.starts_with(SELF))
    {
        if path.ends_with(".rs") {
            for (index, line) in code_only(text).lines().enumerate() {
                for (mark, remedy) in UNFINISHED.iter().filter(|(mark, _)| line.contains(mark)) {
                    findings.push(
                        Finding::new(path, format!("contains `{mark}`"), *remedy)
                            .at_line(index + 1),
                    );
                }
            }
        }
        for (index, line) in text.lines().enumerate() {
            for mark in PROMISES.iter().filter(|mark| has_mark(line, mark)) {
                let finding = Finding::new(
                    path,
                    format!("contains `{mark}`"),
                    "do it now, or open an issue and leave the mark out",
                );
                findings.push(finding.at_line(index + 1));
            }
        }
    }
    findings
}

/// Refuses paths of one machine and talk about the origin of the text.
pub fn places_and_talk(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree
        .texts(&TEXTS)
        .filter(|(path, _)| !path.starts_with(SELF))
    {
        for (index, line) in text.lines().enumerate() {
            if let Some(place) = MACHINE_PATHS.iter().find(|place| line.contains(*place)) {
                let finding = Finding::new(
                    path,
                    format!("names the machine's path `{place}`"),
                    "use a path relative to the repository, a temporary directory or a setting",
                );
                findings.push(finding.at_line(index + 1));
            }
            let lower = line.to_lowercase();
            if let Some(words) = TALK.iter().find(|words| lower.contains(*words)) {
                let finding = Finding::new(
                    path,
                    format!("says \"{words}\""),
                    "describe what the code is, not how or when it came to be; put plans into the tracker",
                );
                findings.push(finding.at_line(index + 1));
            }
        }
    }
    findings
}

/// Returns whether the mark is a word of its own in the line.
fn has_mark(line: &str, mark: &str) -> bool {
    let letter = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(mark).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + mark.len()..].chars().next();
        !before.is_some_and(letter) && !after.is_some_and(letter)
    })
}
