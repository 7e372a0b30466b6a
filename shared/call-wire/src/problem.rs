//! Problems of calls that were read from text.

use call_catalogue::Problem;
use contracts::tavern::common::v1 as common;

/// Writes a problem of the text library.
pub fn problem_to_proto(problem: &Problem) -> common::Violation {
    common::Violation {
        pointer: problem.path.clone(),
        code: problem.code.as_str().to_owned(),
        message: problem.message.clone(),
        expected: problem.expected.clone(),
        received: problem.received.clone(),
        suggestions: problem.suggestions.clone(),
    }
}
