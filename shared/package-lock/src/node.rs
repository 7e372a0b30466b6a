//! Locks of npm: a `package-lock.json` of version 3.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PackageLock {
    lockfile_version: u64,
    packages: BTreeMap<String, Entry>,
}

#[derive(Deserialize)]
struct Entry {
    #[serde(default)]
    version: String,
    #[serde(default)]
    resolved: Option<Value>,
    #[serde(default)]
    integrity: Option<String>,
    #[serde(default)]
    link: bool,
}

/// Reads the packages of a lock.
///
/// # Errors
/// Every wrong entry: the number of its line, from 1, and the problem.
pub(super) fn packages(text: &str) -> Result<BTreeMap<String, String>, Vec<(usize, String)>> {
    let lock: PackageLock = serde_json::from_str(text)
        .map_err(|error| vec![(error.line(), format!("it is not a lock of npm: {error}"))])?;
    if lock.lockfile_version != 3 {
        return Err(vec![(1, "its `lockfileVersion` must be 3".to_owned())]);
    }
    let mut packages = BTreeMap::new();
    let mut problems = Vec::new();
    for (path, entry) in lock.packages.iter().filter(|(path, _)| !path.is_empty()) {
        let name = path.rsplit("node_modules/").next().unwrap_or_default();
        match problem_of(path, entry) {
            None => drop(packages.insert(name.to_owned(), entry.version.clone())),
            Some(problem) => problems.push((line_of(text, path), format!("{name} {problem}"))),
        }
    }
    if packages.is_empty() && problems.is_empty() {
        problems.push((1, "no package is named".to_owned()));
    }
    match problems.is_empty() {
        true => Ok(packages),
        false => Err(problems),
    }
}

fn problem_of(path: &str, entry: &Entry) -> Option<&'static str> {
    let inside = path.split('/').all(|part| !matches!(part, "" | "." | ".."));
    if !inside || !path.starts_with("node_modules/") {
        return Some("is not below node_modules");
    }
    if entry.link {
        return Some("is a link; only packages of an index are taken");
    }
    if entry.resolved.is_some() {
        return Some("names a URL (`resolved`); `tavern packages lock` writes none");
    }
    if !(entry.integrity.as_deref()).is_some_and(|integrity| integrity.starts_with("sha512-")) {
        return Some("has no `integrity` of SHA-512; `tavern packages lock` writes it");
    }
    None
}

/// The number of the line on which an entry begins.
fn line_of(text: &str, path: &str) -> usize {
    let key = format!("\"{path}\":");
    let found = text.lines().position(|line| line.contains(&key));
    found.map_or(1, |index| index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(entry: &str) -> String {
        format!("{{\n\"lockfileVersion\": 3,\n\"packages\": {{\n\"\": {{}},\n{entry}\n}}}}")
    }

    #[test]
    fn a_lock_names_versions_with_an_integrity() {
        let text =
            lock(r#""node_modules/lodash": {"version": "4.17.21", "integrity": "sha512-aa=="}"#);
        assert_eq!(packages(&text).unwrap()["lodash"], "4.17.21");
    }

    #[test]
    fn each_entry_that_names_something_else_is_refused_at_its_line() {
        let cases = [
            (
                r#""node_modules/x": {"version": "1.0.0"}"#,
                "no `integrity`",
            ),
            (
                r#""node_modules/x": {"version": "1.0.0", "resolved": "git+ssh://x", "integrity": "sha512-a"}"#,
                "names a URL",
            ),
            (r#""node_modules/x": {"link": true}"#, "is a link"),
            (
                r#""../x": {"version": "1.0.0", "integrity": "sha512-a"}"#,
                "not below",
            ),
            (
                r#""node_modules/../../x": {"version": "1.0.0", "integrity": "sha512-a"}"#,
                "not below",
            ),
        ];
        for (entry, problem) in cases {
            let problems = packages(&lock(entry)).unwrap_err();
            assert_eq!(problems[0].0, 5, "{entry}");
            assert!(problems[0].1.contains(problem), "{entry}: {problems:?}");
        }
        assert!(
            packages("{").unwrap_err()[0]
                .1
                .contains("not a lock of npm")
        );
    }
}
