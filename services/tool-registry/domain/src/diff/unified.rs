//! Unified diffs of one file, as in seed 002 §5.3.
//!
//! The counts in a hunk's header are not trusted: models get them wrong, and they repeat the hunk's
//! own lines. A hunk ends where the next one begins or the change ends.

use super::{DiffError, Edit, MAX_EDITS};

/// Reads a unified diff of one file.
///
/// # Errors
/// [`DiffError::Malformed`] names the first malformed line.
pub fn read_unified(change: &str) -> Result<Vec<Edit>, DiffError> {
    // The indentation of a closing tag, left behind by the model, is no context line.
    let lines: Vec<&str> = change.trim_end().lines().collect();
    let mut edits: Vec<Edit> = Vec::new();
    let mut headers = 0;
    for (index, line) in lines.iter().enumerate() {
        let number = index + 1;
        let next_is_new_name = lines
            .get(index + 1)
            .is_some_and(|next| next.starts_with("+++ "));
        if line.starts_with("--- ") && next_is_new_name {
            headers += 1;
            if headers > 1 {
                return Err(malformed(
                    number,
                    "a second file begins here; change one file per call",
                ));
            }
        } else if line.starts_with("+++ ") && index > 0 && lines[index - 1].starts_with("--- ") {
            // The second line of the file's header.
        } else if line.starts_with("@@") {
            edits.push(Edit {
                line: old_start(line),
                ..Edit::default()
            });
            if edits.len() > MAX_EDITS {
                return Err(malformed(
                    number,
                    &format!("more than {MAX_EDITS} hunks; split the change"),
                ));
            }
        } else if let Some(edit) = edits.last_mut() {
            add_line(edit, line, number)?;
        } else if !is_preamble(line) {
            return Err(malformed(
                number,
                "lines of a change must follow a hunk header '@@ -1,5 +1,5 @@'",
            ));
        }
    }
    if edits.is_empty() {
        return Err(malformed(
            1,
            "there is no hunk; begin one with '@@ -1,5 +1,5 @@'",
        ));
    }
    match edits.iter().position(|edit| edit.old == edit.new) {
        Some(hunk) => Err(malformed(
            1,
            &format!("hunk {} changes nothing; remove it", hunk + 1),
        )),
        None => Ok(edits),
    }
}

fn add_line(edit: &mut Edit, line: &str, number: usize) -> Result<(), DiffError> {
    match line.as_bytes().first() {
        Some(b'+') => edit.new.push(line[1..].to_owned()),
        Some(b'-') => edit.old.push(line[1..].to_owned()),
        Some(b' ') => {
            edit.old.push(line[1..].to_owned());
            edit.new.push(line[1..].to_owned());
        }
        // Editors strip the one space of an empty context line.
        None => {
            edit.old.push(String::new());
            edit.new.push(String::new());
        }
        Some(b'\\') => {}
        Some(_) => {
            let problem = "a line of a hunk begins with ' ', '+' or '-'";
            return Err(malformed(number, problem));
        }
    }
    Ok(())
}

fn is_preamble(line: &str) -> bool {
    line.trim().is_empty()
        || [
            "diff ",
            "index ",
            "new file mode ",
            "old mode ",
            "new mode ",
        ]
        .iter()
        .any(|start| line.starts_with(start))
}

/// Returns the first old line of `@@ -10,5 +12,6 @@`; none if the header states none.
fn old_start(header: &str) -> Option<usize> {
    let old = header
        .split_whitespace()
        .find_map(|word| word.strip_prefix('-'))?;
    let start: usize = old.split(',').next()?.parse().ok()?;
    Some(start.max(1))
}

fn malformed(line: usize, problem: &str) -> DiffError {
    DiffError::Malformed {
        line,
        problem: problem.to_owned(),
    }
}
