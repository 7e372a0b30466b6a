//! Changes to a text as models write them: search-and-replace blocks and unified diffs.
//!
//! Both are read into [`Edit`]s, a run of old lines and its replacement, and applied to the lines
//! of a file. Old lines must match exactly; only a carriage return at the end of a line is not
//! compared, and the file keeps the line ending that it has. Line numbers are hints: models count
//! badly, so a place is found by its text, and the number chooses between equals.

mod blocks;
#[cfg(test)]
mod tests;
mod unified;

pub use blocks::read_blocks;
pub use unified::read_unified;

/// The most edits of one change.
pub const MAX_EDITS: usize = 256;

/// One change: a run of lines and its replacement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edit {
    /// The present lines.
    pub old: Vec<String>,
    /// The lines that replace them.
    pub new: Vec<String>,
    /// The stated first line of the old lines, from 1.
    pub line: Option<usize>,
}

/// The reason for which a change cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiffError {
    /// The change is malformed.
    #[error("line {line} of the change: {problem}")]
    Malformed {
        /// The line of the change, from 1.
        line: usize,
        /// The problem, and the remedy.
        problem: String,
    },
    /// The old lines of an edit are not in the file.
    #[error(
        "edit {edit} does not fit: its old lines, which begin with '{first}', are not in the file{hint}; \
         read the file and copy the lines exactly"
    )]
    NotFound {
        /// The edit, from 1.
        edit: usize,
        /// Its first old line, cut.
        first: String,
        /// The place of a similar line; empty if there is none.
        hint: String,
    },
    /// The old lines of an edit are in the file more than once.
    #[error(
        "edit {edit} is ambiguous: its old lines are in the file {times} times; add more lines around \
         the change, or say the line"
    )]
    Ambiguous {
        /// The edit, from 1.
        edit: usize,
        /// The number of matches.
        times: usize,
    },
}

impl DiffError {
    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Malformed { .. } => "malformed_diff",
            Self::NotFound { .. } => "diff_does_not_apply",
            Self::Ambiguous { .. } => "diff_is_ambiguous",
        }
    }
}

/// Applies edits to a text, all of them or none.
///
/// # Errors
/// [`DiffError`] for the first edit without a place, or with more than one.
pub fn apply(text: &str, edits: &[Edit]) -> Result<String, DiffError> {
    let ending = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let ends_with_newline = text.is_empty() || text.ends_with('\n');
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    // The distance by which earlier edits have moved the lines after them.
    let mut moved: isize = 0;
    for (index, edit) in edits.iter().enumerate() {
        let hint = edit
            .line
            .map(|line| (line as isize - 1 + moved).max(0) as usize);
        let at = place_of(&lines, edit, hint, index + 1)?;
        lines.splice(at..at + edit.old.len(), edit.new.iter().cloned());
        moved += edit.new.len() as isize - edit.old.len() as isize;
    }
    let mut changed = lines.join(ending);
    if ends_with_newline && !changed.is_empty() {
        changed.push_str(ending);
    }
    Ok(changed)
}

fn place_of(
    lines: &[String],
    edit: &Edit,
    hint: Option<usize>,
    number: usize,
) -> Result<usize, DiffError> {
    if edit.old.is_empty() {
        return match hint {
            Some(line) => Ok(line.min(lines.len())),
            None if lines.is_empty() => Ok(0),
            None => Err(DiffError::Malformed {
                line: 1,
                problem: format!(
                    "edit {number} names no old lines, so its place is unknown; add some"
                ),
            }),
        };
    }
    let fits: Vec<usize> = (0..(lines.len() + 1).saturating_sub(edit.old.len()))
        .filter(|start| same(&lines[*start..*start + edit.old.len()], &edit.old))
        .collect();
    match (fits.as_slice(), hint) {
        ([only], _) => Ok(*only),
        ([], _) => Err(not_found(lines, edit, number)),
        (several, Some(hint)) => {
            let nearest = several.iter().min_by_key(|start| start.abs_diff(hint));
            Ok(*nearest.expect("several is not empty"))
        }
        (several, None) => Err(DiffError::Ambiguous {
            edit: number,
            times: several.len(),
        }),
    }
}

fn same(lines: &[String], old: &[String]) -> bool {
    lines
        .iter()
        .zip(old)
        .all(|(line, old)| line.trim_end_matches('\r') == old.trim_end_matches('\r'))
}

fn not_found(lines: &[String], edit: &Edit, number: usize) -> DiffError {
    let wanted = edit.old.iter().find(|line| !line.trim().is_empty());
    let first = wanted.map_or("", |line| line.trim());
    let alike = lines
        .iter()
        .position(|line| !first.is_empty() && line.trim() == first);
    DiffError::NotFound {
        edit: number,
        first: first.chars().take(80).collect(),
        hint: alike.map_or_else(String::new, |line| {
            format!(" (a line like it is line {})", line + 1)
        }),
    }
}
