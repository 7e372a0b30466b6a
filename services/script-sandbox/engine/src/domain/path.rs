//! Paths below a working directory.

/// The longest path, in bytes.
pub const MAX_PATH_BYTES: usize = 1024;
/// The most levels in a path.
pub const MAX_PATH_DEPTH: usize = 32;

/// Returns the fault of a path below the working directory.
pub(super) fn path_problem(path: &str) -> Option<String> {
    if path.len() > MAX_PATH_BYTES || path.split('/').count() > MAX_PATH_DEPTH {
        return Some(format!(
            "must be at most {MAX_PATH_BYTES} bytes and {MAX_PATH_DEPTH} levels"
        ));
    }
    if path.split('/').any(|part| part.len() > 255) {
        return Some("must have names of at most 255 bytes".to_owned());
    }
    let sound = |part: &str| !matches!(part, "" | "." | "..") && !part.contains('\0');
    if path.split('/').all(sound) {
        None
    } else {
        Some("must be relative, without `.`, `..`, empty names or NUL".to_owned())
    }
}
