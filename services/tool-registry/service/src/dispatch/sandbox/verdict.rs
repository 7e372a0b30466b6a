//! What the sandbox's verdict means for a call.

use call_outcome::{Failure, Written};
use contracts::tavern::sandbox::v1::{ExecuteResponse, verdict::Kind};

/// Returns why a program did not succeed; nothing if it exited with the code zero.
pub(in crate::dispatch) fn failed_verdict(
    response: &ExecuteResponse,
    language: &str,
) -> Option<Failure> {
    let written = Written::from_bytes(&response.stdout, &response.stderr);
    call_wire::script_failure(response.verdict.as_ref(), language, &written)
}

/// Whether a program ended by itself, with any code.
pub(in crate::dispatch) fn has_exited(response: &ExecuteResponse) -> bool {
    let verdict = response.verdict.as_ref();
    let kind = verdict.and_then(|verdict| verdict.kind.as_ref());
    matches!(kind, Some(Kind::Exited(_)))
}
