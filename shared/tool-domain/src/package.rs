//! Which names the files of a plugin may have, and how much a plugin may bring.

use std::collections::HashMap;

/// The most files of a plugin, front-end assets aside.
pub const MAX_FILES: usize = 256;
/// The most bytes of all files of a plugin together, front-end assets aside.
pub const MAX_BYTES: usize = 3 << 20;
/// The deepest directory of a plugin.
pub const MAX_DEPTH: usize = 16;
/// The longest relative path, in bytes.
pub const MAX_PATH_BYTES: usize = 512;

/// Checks a path that a manifest or a definition gives and returns it without `./`.
///
/// # Errors
/// What is wrong, as the end of a sentence that begins with the path.
pub fn relative_path(written: &str) -> Result<String, String> {
    if written.len() > MAX_PATH_BYTES {
        return Err(format!(
            "has {} bytes; at most {MAX_PATH_BYTES} are accepted",
            written.len()
        ));
    }
    if written.starts_with('/') {
        return Err("is absolute; write it relative to the plugin's directory".to_owned());
    }
    if let Some(character) = written
        .chars()
        .find(|c| c.is_control() || *c == '\\' || *c == ':')
    {
        return Err(format!(
            "contains {character:?}; write it with '/' between plain names"
        ));
    }
    let mut parts = Vec::new();
    for part in written.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                return Err("leaves its directory by '..'; keep it inside the plugin".to_owned());
            }
            name => parts.push(name),
        }
    }
    if parts.is_empty() {
        return Err("names no file".to_owned());
    }
    if parts.len() > MAX_DEPTH {
        return Err(format!(
            "is nested {} deep; at most {MAX_DEPTH}",
            parts.len()
        ));
    }
    Ok(parts.join("/"))
}

/// Finds two paths that differ in letter case only, which one of two systems would confuse.
pub fn case_twins<'a>(paths: impl IntoIterator<Item = &'a str>) -> Option<(String, String)> {
    let mut seen: HashMap<String, &str> = HashMap::new();
    for path in paths {
        if let Some(twin) = seen.insert(path.to_lowercase(), path) {
            return Some((twin.to_owned(), path.to_owned()));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_kept_beneath_its_directory() {
        assert_eq!(relative_path("./tools"), Ok("tools".to_owned()));
        assert_eq!(relative_path("a//b/./c"), Ok("a/b/c".to_owned()));
        for bad in ["", ".", "/etc", "..", "a/../b", "a\\b", "C:x", "a\0b"] {
            assert!(relative_path(bad).is_err(), "{bad:?}");
        }
        assert!(relative_path(&"a/".repeat(17)).is_err());
    }

    #[test]
    fn paths_that_differ_in_case_only_are_found() {
        assert_eq!(case_twins(["a", "b"]), None);
        assert_eq!(
            case_twins(["Read.py", "x", "read.py"]),
            Some(("Read.py".into(), "read.py".into()))
        );
    }
}
