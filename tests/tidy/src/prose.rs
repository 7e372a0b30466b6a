//! Words that the project has given up, and the remaining count of each.
//!
//! The count of a word can only fall: a text that adds one fails, and so does a text that removes
//! one without lowering the count in `tests/tidy/prose.toml`.

use std::collections::BTreeMap;

use crate::{Finding, Tree};

/// Files that people read as prose, comments included.
const TEXTS: [&str; 8] = [
    ".rs",
    ".proto",
    ".md",
    ".toml",
    ".mjs",
    ".ts",
    ".tsx",
    ".tool.json",
];

/// This crate names the counted words.
const SELF: &str = "tests/tidy/";

/// The counts, by word.
const COUNTS: &str = "tests/tidy/prose.toml";

/// A word that is given up, and the field's word.
const GIVEN_UP: [(&str, &str); 12] = [
    (
        "Says that",
        "say `Whether …` of a field, `Returns …` of a function",
    ),
    ("goes on", "say `continues` or `is still running`"),
    ("go on", "say `continue`"),
    (
        "nobody",
        "name the caller, client or process that is absent",
    ),
    ("somebody", "name the caller, client or process"),
    ("whoever", "name the caller, client or process"),
    ("told", "say `reported`, `sent`, `recorded` or `returned`"),
    ("tells", "say `reports`, `sends`, `records` or `returns`"),
    ("everybody", "name the callers, users or processes"),
    ("mend", "say `fix`"),
    ("mends", "say `fixes`"),
    ("mended", "say `fixed`"),
];

/// Compares the count of each word with the recorded count.
pub fn given_up_words(tree: &Tree) -> Vec<Finding> {
    let recorded = counts_of(tree);
    let mut findings = Vec::new();
    for (word, remedy) in GIVEN_UP {
        let most = recorded.get(word).copied().unwrap_or(0);
        let places = places_of(tree, word);
        if places.len() > most {
            let (path, line) = places.last().copied().unwrap_or((COUNTS, 0));
            let problem = format!(
                "`{word}` stands {} times, {most} are recorded",
                places.len()
            );
            findings.push(Finding::new(path, problem, remedy).at_line(line));
        }
        if places.len() < most {
            let problem = format!(
                "`{word}` stands {} times, {most} are recorded",
                places.len()
            );
            let remedy = format!("write \"{word}\" = {}", places.len());
            findings.push(Finding::new(COUNTS, problem, remedy));
        }
    }
    findings
}

fn counts_of(tree: &Tree) -> BTreeMap<String, usize> {
    let text = tree.text(COUNTS).unwrap_or_default();
    toml::from_str(text).unwrap_or_default()
}

/// Returns the places of a word on its own, in any letter case.
fn places_of<'a>(tree: &'a Tree, word: &str) -> Vec<(&'a str, usize)> {
    let word = word.to_lowercase();
    let texts = tree
        .texts(&TEXTS)
        .filter(|(path, _)| !path.starts_with(SELF));
    texts
        .flat_map(|(path, text)| {
            let word = &word;
            let lines = text.lines().enumerate();
            lines.flat_map(move |(index, line)| {
                let times = times_in(&line.to_lowercase(), word);
                std::iter::repeat_n((path, index + 1), times)
            })
        })
        .collect()
}

fn times_in(line: &str, word: &str) -> usize {
    let of_a_word = |c: char| c.is_alphanumeric() || c == '_';
    let stands_alone = |at: usize| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(of_a_word) && !after.is_some_and(of_a_word)
    };
    line.match_indices(word)
        .filter(|(at, _)| stands_alone(*at))
        .count()
}
