//! What the sandbox's verdict means for a call.

use call_outcome::{Failure, Verdict, Written};
use contracts::tavern::sandbox::v1::ExecuteResponse;

/// Returns why a program did not succeed; nothing if it exited with the code zero.
pub(in crate::dispatch) fn failed_verdict(
    response: &ExecuteResponse,
    language: &str,
) -> Option<Failure> {
    let verdict = call_wire::verdict_from_proto(response.verdict.as_ref());
    if verdict == Verdict::Exited(0) {
        return None;
    }
    let written = Written::from_bytes(&response.stdout, &response.stderr);
    Some(verdict.failure(language, &written))
}

/// Whether a program ended by itself, with any code.
pub(in crate::dispatch) fn has_exited(response: &ExecuteResponse) -> bool {
    let verdict = call_wire::verdict_from_proto(response.verdict.as_ref());
    matches!(verdict, Verdict::Exited(_))
}
