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

/// Where the reader is.
enum State {
    Outside,
    Head(Edit),
    Old(Edit),
    New(Edit),
}

/// Reads search-and-replace blocks.
///
/// # Errors
/// [`DiffError::Malformed`] names the first line that is not as it should be.
pub fn read_blocks(change: &str) -> Result<Vec<Edit>, DiffError> {
    let mut edits = Vec::new();
    let mut state = State::Outside;
    let mut last = 0;
    for (index, line) in change.lines().enumerate() {
        last = index + 1;
        let marker = line.trim();
        state = match state {
            State::Outside if marker.is_empty() => State::Outside,
            State::Outside if is_open(marker) => State::Head(Edit::default()),
            State::Outside => {
                return Err(malformed(last, "a block must begin with '<<<<<<< SEARCH'"));
            }
            State::Head(mut edit) => match marker.strip_prefix(":start_line:") {
                Some(number) => {
                    edit.line = Some(line_number(last, number)?);
                    State::Head(edit)
                }
                None if marker == "-------" => State::Old(edit),
                None => old_line(edit, line, marker),
            },
            State::Old(edit) => old_line(edit, line, marker),
            State::New(edit) if is_close(marker) => {
                edits.push(edit);
                State::Outside
            }
            State::New(mut edit) => {
                edit.new.push(line.to_owned());
                State::New(edit)
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
        State::Outside if edits.is_empty() => Err(malformed(
            last.max(1),
            "there is no block; begin one with '<<<<<<< SEARCH'",
        )),
        State::Outside => Ok(edits),
        State::New(_) => Err(malformed(
            last,
            "the block is not closed; end it with '>>>>>>> REPLACE'",
        )),
        _ => Err(malformed(
            last,
            "the block has no '=======' between old and new lines",
        )),
    }
}

fn old_line(mut edit: Edit, line: &str, marker: &str) -> State {
    if marker == "=======" {
        return State::New(edit);
    }
    edit.old.push(line.to_owned());
    State::Old(edit)
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
