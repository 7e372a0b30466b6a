//! What is wrong with a call, from either of its checkers.

use call_text::Problem;
use contracts::tavern::common::v1 as common;

/// Writes what the text library found.
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

/// Writes what the schema checker found.
pub fn violation_to_proto(violation: &json_schema::Violation) -> common::Violation {
    common::Violation {
        pointer: violation.pointer.clone(),
        code: violation.code.as_str().to_owned(),
        message: violation.message.clone(),
        expected: violation.expected.clone(),
        received: violation.received.clone(),
        suggestions: violation.suggestions.clone(),
    }
}
