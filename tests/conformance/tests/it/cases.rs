//! Every case is read as expected, and every rule has a case.

use std::collections::BTreeSet;

use call_catalogue::Rule;
use call_text::parse_finished;
use conformance::{cases, catalogue, differences};

#[test]
fn every_case_means_what_it_says() {
    let catalogue = catalogue().unwrap();
    let mut failures = Vec::new();
    for case in cases().unwrap() {
        let expected = &case.expected;
        let parsed = parse_finished(&case.input, &catalogue, &expected.policy, expected.finish);
        let found = differences(&case, &parsed, &catalogue);
        if !found.is_empty() {
            failures.push(format!("{}\n  {}", case.name, found.join("\n  ")));
        }
    }
    assert!(
        failures.is_empty(),
        "{} cases differ:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

#[test]
fn there_are_at_least_three_hundred_cases() {
    assert!(cases().unwrap().len() >= 300);
}

/// Rules about executors, prompts or the rule book itself; they are tested in their own crates.
const ELSEWHERE: &[Rule] = &[
    Rule::C13,
    Rule::T29,
    Rule::T31,
    Rule::T35,
    Rule::L3,
    Rule::L4,
    Rule::L5,
    Rule::L6,
    Rule::L7,
    Rule::L8,
    Rule::L9,
    Rule::L2,
];

#[test]
fn every_rule_that_reading_covers_has_a_case() {
    let named: BTreeSet<String> = cases()
        .unwrap()
        .into_iter()
        .flat_map(|case| case.expected.rules)
        .collect();
    let known: BTreeSet<String> = Rule::ALL.iter().map(|rule| rule.id()).collect();
    let unknown: Vec<_> = named.difference(&known).collect();
    assert!(
        unknown.is_empty(),
        "cases name rules that do not exist: {unknown:?}"
    );
    let missing: Vec<_> = Rule::ALL
        .iter()
        .filter(|rule| !ELSEWHERE.contains(rule) && !named.contains(&rule.id()))
        .collect();
    assert!(missing.is_empty(), "rules without a case: {missing:?}");
}
