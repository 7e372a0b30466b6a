//! The failure of a call, from the sandbox's verdict.

use call_outcome::{Failure, Written};
use contracts::tavern::sandbox::v1::ExecuteResponse;

/// Returns the failure of a program; none if it exited with the code zero.
pub(in crate::dispatch) fn failed_verdict(
    response: &ExecuteResponse,
    language: &str,
) -> Option<Failure> {
    let verdict = response.verdict.as_ref();
    let written = Written::from_bytes(&response.stdout, &response.stderr);
    let failed = call_wire::exit_code(verdict) != Some(0);
    failed.then(|| call_wire::script_failure(verdict, language, &written))
}

/// Whether a program ended by itself, with any code.
pub(in crate::dispatch) fn has_exited(response: &ExecuteResponse) -> bool {
    call_wire::exit_code(response.verdict.as_ref()).is_some()
}
