//! The table of hostile programs is complete.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use crate::abuse::controls::{CONTROLS, IN_THEIR_TESTS};

const TABLE: &str = include_str!("../../ABUSE.md");

/// The numbers in the names of all tests below a directory.
fn numbers_of_tests(directory: &Path) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    let mut open: Vec<PathBuf> = vec![directory.to_owned()];
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(fs::read_dir(&path).unwrap().flatten().map(|it| it.path()));
        } else if path.extension().is_some_and(|is| is == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            found.extend(text.lines().filter_map(name_of_test).flat_map(numbers));
        }
    }
    found
}

/// The numbers of the table.
fn listed() -> BTreeSet<u32> {
    TABLE
        .lines()
        .filter_map(|line| line.strip_prefix("| E")?.split(' ').next()?.parse().ok())
        .collect()
}

fn name_of_test(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = line.strip_prefix("async ").unwrap_or(line);
    line.strip_prefix("fn ")?.split('(').next()
}

/// The numbers that a name begins with: 43 and 51 of `e43_e51_calls`.
fn numbers(name: &str) -> impl Iterator<Item = u32> {
    name.split('_')
        .map_while(|part| part.strip_prefix('e')?.parse().ok())
}

#[test]
fn every_number_of_the_table_has_its_test_and_the_other_way_round() {
    let listed = listed();
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let launcher = own.with_file_name("launcher");
    let tested: BTreeSet<u32> = [own, &launcher]
        .iter()
        .flat_map(|crate_directory| ["src", "tests"].map(|part| crate_directory.join(part)))
        .flat_map(|directory| numbers_of_tests(&directory))
        .collect();
    let untested: Vec<_> = listed.difference(&tested).collect();
    let unlisted: Vec<_> = tested.difference(&listed).collect();
    assert!(
        untested.is_empty() && unlisted.is_empty(),
        "without a test: {untested:?}; without a row in ABUSE.md: {unlisted:?}"
    );
    assert!(listed.len() > 70, "{listed:?}");
}

#[test]
fn every_number_has_its_control_or_a_reason_why_not() {
    let shown: BTreeSet<u32> = CONTROLS
        .iter()
        .map(|control| control.number)
        .chain(IN_THEIR_TESTS)
        .collect();
    let (_, section) = TABLE.split_once("## Without a sandbox").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let section = |beginning: &str| -> BTreeSet<u32> {
        let items = section
            .split("\n- ")
            .filter_map(|item| item.strip_prefix(beginning));
        items
            .filter_map(|item| item.split('.').next())
            .flat_map(|numbers| numbers.split([',', ' ', '\n']))
            .filter_map(|number| number.strip_prefix('E')?.parse().ok())
            .collect()
    };
    assert_eq!(section("Shown to succeed:"), shown);
    let not_shown = section("Not shown:");
    let both: Vec<_> = shown.intersection(&not_shown).collect();
    assert!(both.is_empty(), "{both:?}");
    let all: BTreeSet<u32> = shown.union(&not_shown).copied().collect();
    assert_eq!(all, listed());
}
