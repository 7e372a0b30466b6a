//! The names that files of a plugin may have.

use std::collections::HashMap;

use call_outcome::Violation;
use core_types::text::is_hidden;
use unicode_normalization::UnicodeNormalization as _;

use crate::refusal::{Refusal, shown};

/// The longest path of a file, in bytes.
pub const MAX_PATH_BYTES: usize = 240;
/// The longest name of a file or directory, in bytes.
pub const MAX_COMPONENT_BYTES: usize = 100;
/// The most names of a path, the file's own included.
pub const MAX_DEPTH: usize = 12;

/// Whether a reader passes over a path: a name in it begins with a dot, or is of a file that Python makes when it runs
/// a script.
pub(crate) fn is_passed_over(path: &str) -> bool {
    let mut names = path.split('/');
    names.any(|name| name.starts_with('.') || name == "__pycache__" || name.ends_with(".pyc"))
}

/// Checks the path of a file or directory of a plugin.
///
/// # Errors
/// The first problem of the path, at its name.
pub(crate) fn check(path: &str) -> Result<(), Refusal> {
    check_within(path, MAX_PATH_BYTES, MAX_DEPTH)
}

/// Checks the path of an entry of an archive, where the plugin's directory may stand before it.
///
/// # Errors
/// As [`check`].
pub(crate) fn check_entry(path: &str) -> Result<(), Refusal> {
    check_within(
        path,
        MAX_PATH_BYTES + MAX_COMPONENT_BYTES + 1,
        MAX_DEPTH + 1,
    )
}

fn check_within(path: &str, most_bytes: usize, most_names: usize) -> Result<(), Refusal> {
    let problem = problem_of(path, most_bytes, most_names);
    problem.map_or(Ok(()), |problem| {
        Err(Refusal::new(path, "invalid_path", problem))
    })
}

fn problem_of(path: &str, most_bytes: usize, most_names: usize) -> Option<String> {
    if path.len() > most_bytes {
        return Some(format!(
            "has {} bytes, at most {MAX_PATH_BYTES} are accepted; give it a shorter name",
            path.len()
        ));
    }
    if path.starts_with('/') {
        return Some("is absolute; write it relative to the plugin's directory".to_owned());
    }
    if let Some(character) = path
        .chars()
        .find(|c| is_hidden(*c) || matches!(c, '\\' | ':'))
    {
        return Some(format!(
            "contains '{}'; use visible characters, and '/' between names",
            shown(character.encode_utf8(&mut [0; 4]))
        ));
    }
    if path.split('/').count() > most_names {
        return Some(format!(
            "is nested more than {MAX_DEPTH} deep; put it higher"
        ));
    }
    path.split('/').find_map(|name| match name {
        "" => Some("has an empty name; write single '/' between names".to_owned()),
        "." => Some("contains '.'; leave it out".to_owned()),
        ".." => Some("leaves its directory by '..'; keep it inside the plugin".to_owned()),
        name if name.len() > MAX_COMPONENT_BYTES => Some(format!(
            "has a name of {} bytes, at most {MAX_COMPONENT_BYTES} are accepted; shorten it",
            name.len()
        )),
        name if name.ends_with(['.', ' ']) => {
            Some("has a name that ends with a dot or a space; take it away".to_owned())
        }
        _ => None,
    })
}

/// Returns the form in which two names of a directory are equal that a file system may take for one: neither the
/// composition of characters nor their case counts.
fn folded(name: &str) -> String {
    if name.is_ascii() {
        return name.to_ascii_lowercase();
    }
    // Through capitals, so that 'ß' is equal to 'SS', and both forms of a small sigma to each other.
    let capitals = name.nfd().flat_map(char::to_lowercase);
    let capitals = capitals.flat_map(char::to_uppercase);
    capitals.flat_map(char::to_lowercase).nfc().collect()
}

/// A path, and whether it is a directory.
#[derive(Clone, Copy)]
pub(crate) struct Named<'a> {
    pub(crate) path: &'a str,
    pub(crate) is_directory: bool,
}

/// Finds paths that cannot stand beside each other: the same one twice, a file that is a directory too, and files or
/// directories whose names a file system may take for one. At most one violation for each path. Takes time and memory in
/// proportion to the length of all paths.
pub(crate) fn collisions<'a>(paths: impl IntoIterator<Item = Named<'a>>) -> Vec<Violation> {
    let mut tree = Tree::default();
    let paths = paths.into_iter();
    paths
        .filter_map(|named| Some(tree.add(named)?.into()))
        .collect()
}

/// The directories and files of the paths that were seen.
#[derive(Default)]
struct Tree<'a> {
    /// The number of each name, by the number of its directory and its folded form. The root is 0.
    numbers: HashMap<(usize, String), usize>,
    /// The names by number, from 1.
    names: Vec<Seen<'a>>,
}

impl<'a> Tree<'a> {
    /// Adds a path, unless it collides.
    fn add(&mut self, Named { path, is_directory }: Named<'a>) -> Option<Refusal> {
        let mut directory = 0;
        let mut start = 0;
        let ends = path.match_indices('/').map(|(at, _)| at);
        for end in ends.chain([path.len()]) {
            let this = Seen {
                spelling: &path[..end],
                is_directory: is_directory || end < path.len(),
                is_entry: end == path.len(),
            };
            let key = (directory, folded(&path[start..end]));
            directory = *self.numbers.entry(key).or_insert(self.names.len() + 1);
            match self.names.get_mut(directory - 1) {
                Some(earlier) => {
                    if let Some((code, message)) = earlier.meet(this) {
                        return Some(Refusal::new(path, code, message));
                    }
                }
                None => self.names.push(this),
            }
            start = end + 1;
        }
        None
    }
}

/// A name that was seen.
struct Seen<'a> {
    spelling: &'a str,
    is_directory: bool,
    /// Whether it was written out, and is not the beginning of other paths only.
    is_entry: bool,
}

impl Seen<'_> {
    /// Compares an equal name with this one.
    fn meet(&mut self, other: Seen<'_>) -> Option<(&'static str, String)> {
        if self.spelling != other.spelling {
            let message = format!(
                "'{}' and '{}' differ in letter case or composition only; rename one",
                shown(self.spelling),
                shown(other.spelling)
            );
            return Some(("case_twins", message));
        }
        if self.is_directory != other.is_directory {
            let message = format!(
                "'{}' is a file and a directory; rename one",
                shown(other.spelling)
            );
            return Some(("file_and_directory", message));
        }
        if self.is_entry && other.is_entry {
            let message = "stands twice; keep one of them".to_owned();
            return Some(("duplicate", message));
        }
        self.is_entry |= other.is_entry;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_keeps_to_plain_visible_names() {
        let deep = "a/".repeat(MAX_DEPTH - 1);
        let long = "x".repeat(MAX_COMPONENT_BYTES);
        for good in ["a", "a b/c", "文件/一.md", &format!("{deep}b"), &long] {
            assert_eq!(check(good), Ok(()), "{good:?}");
        }
        for bad in [
            "",
            "/",
            "/a",
            "a/",
            "a//b",
            ".",
            "./a",
            "a/..",
            "../a",
            "a\\b",
            "C:a",
            "a\0b",
            "a\nb",
            "a\u{202e}b",
            "a\u{200b}b",
            "a.",
            "a ",
            "a./b",
            &format!("{deep}b/c"),
            &format!("{long}x"),
            &format!("{long}/{long}/{long}"),
        ] {
            assert!(check(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn paths_that_a_file_system_takes_for_one_are_found() {
        let codes = |paths: &[&str]| -> Vec<String> {
            let named = paths.iter().map(|path| Named {
                path: path.trim_end_matches('/'),
                is_directory: path.ends_with('/'),
            });
            let found = collisions(named).into_iter();
            found
                .map(|each| format!("{} {}", each.code, each.pointer))
                .collect()
        };
        for fine in [
            &["a", "b"][..],
            &["a/", "a/b", "a/c"],
            &["a/b", "a/", "a/c"],
            &["a/b", "b/b"],
        ] {
            assert!(codes(fine).is_empty(), "{fine:?}");
        }
        for (twins, expected) in [
            (["Read.py", "read.py"], "case_twins read.py"),
            (["Lib/a", "lib/b"], "case_twins lib/b"),
            (["straße", "STRASSE"], "case_twins STRASSE"),
            (["\u{e9}", "e\u{301}"], "case_twins e\u{301}"),
            (["ὀδός", "ὈΔΌΣ"], "case_twins ὈΔΌΣ"),
            (["\u{212a}", "k"], "case_twins k"),
            (["a", "a"], "duplicate a"),
            (["a/", "a/"], "duplicate a"),
            (["a", "a/b"], "file_and_directory a/b"),
            (["a/b", "a"], "file_and_directory a"),
            (["a", "a/"], "file_and_directory a"),
        ] {
            assert_eq!(codes(&twins), [expected]);
        }
    }
}
