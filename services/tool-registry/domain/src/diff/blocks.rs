//! Search-and-replace blocks, as in seed 002 §3.2.4:
//!
//! ```text
//! <<<<<<< SEARCH
//! :start_line:10
//! -------
//! old lines
//! =======
//! new lines
//! >>>>>>> REPLACE
//! ```
//!
//! The line number and the rule below it may be left out. Blocks may follow each other.

use super::{DiffError, Edit, MAX_EDITS};

/// The state of the reader.
enum BlockState {
    Outside,
    Head(Edit),
    Old(Edit),
    New(Edit),
}

/// Reads search-and-replace blocks.
///
/// # Errors
/// [`DiffError::Malformed`] names the first malformed line.
pub fn read_blocks(change: &str) -> Result<Vec<Edit>, DiffError> {
    let mut edits = Vec::new();
    let mut state = BlockState::Outside;
    let mut last = 0;
    for (index, line) in change.lines().enumerate() {
        last = index + 1;
        let marker = line.trim();
        state = match state {
            BlockState::Outside if marker.is_empty() => BlockState::Outside,
            BlockState::Outside if is_open(marker) => BlockState::Head(Edit::default()),
            BlockState::Outside => {
                return Err(malformed(last, "a block must begin with '<<<<<<< SEARCH'"));
            }
            BlockState::Head(mut edit) => match marker.strip_prefix(":start_line:") {
                Some(number) => {
                    edit.line = Some(line_number(last, number)?);
                    BlockState::Head(edit)
                }
                None if marker == "-------" => BlockState::Old(edit),
                None => old_line(edit, line, marker),
            },
            BlockState::Old(edit) => old_line(edit, line, marker),
            BlockState::New(edit) if is_close(marker) => {
                edits.push(edit);
                BlockState::Outside
            }
            BlockState::New(mut edit) => {
                edit.new.push(line.to_owned());
                BlockState::New(edit)
            }
        };
        if edits.len() > MAX_EDITS {
            return Err(malformed(
                last,
                &format!("more than {MAX_EDITS} blocks; split the change"),
            ));
        }
    }
    match state {
        BlockState::Outside if edits.is_empty() => Err(malformed(
            last.max(1),
            "there is no block; begin one with '<<<<<<< SEARCH'",
        )),
        BlockState::Outside => Ok(edits),
        BlockState::New(_) => Err(malformed(
            last,
            "the block is not closed; end it with '>>>>>>> REPLACE'",
        )),
        _ => Err(malformed(
            last,
            "the block has no '=======' between old and new lines",
        )),
    }
}

fn old_line(mut edit: Edit, line: &str, marker: &str) -> BlockState {
    if marker == "=======" {
        return BlockState::New(edit);
    }
    edit.old.push(line.to_owned());
    BlockState::Old(edit)
}

fn is_open(marker: &str) -> bool {
    marker
        .strip_prefix("<<<<<<<")
        .is_some_and(|rest| rest.trim() == "SEARCH")
}

fn is_close(marker: &str) -> bool {
    marker
        .strip_prefix(">>>>>>>")
        .is_some_and(|rest| rest.trim() == "REPLACE")
}

fn line_number(line: usize, text: &str) -> Result<usize, DiffError> {
    match text.trim().parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(malformed(
            line,
            "the line after ':start_line:' must be a number from 1",
        )),
    }
}

fn malformed(line: usize, problem: &str) -> DiffError {
    DiffError::Malformed {
        line,
        problem: problem.to_owned(),
    }
}
