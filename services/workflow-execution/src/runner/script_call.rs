//! Running a script in the sandbox. A script has no effect outside, so it may run again.

use contracts::tavern::common::v1::WorkKind;
use contracts::tavern::sandbox::v1::verdict::Kind as Verdict;
use contracts::tavern::sandbox::v1::{
    ExecuteRequest, ExecuteResponse, Limits, ResultState, execute_request::Program,
};
use run_events::RunControl;
use tonic::{Code, Status};

use crate::domain::failure::{Category, NodeFailure};
use crate::domain::node_type::Settled;
use crate::wire;

use super::{Backoff, Peers, code_of, is_worth_repeating};

/// How much of the end of standard error goes into the details of a failure, in characters.
const STDERR_TAIL: usize = 2_000;

/// How often a sandbox that fails inside is asked again.
const TRIES_AFTER_FAILURES: u32 = 3;

/// What a script node asks for.
#[derive(Clone, Debug)]
pub(super) struct ScriptCall {
    pub(super) effect_id: String,
    pub(super) language: String,
    pub(super) code: String,
    pub(super) input_json: String,
    pub(super) wall_millis: Option<u64>,
}

/// Runs a script to its end. A cancel of the run drops the request, which kills the script.
pub(super) async fn carry_out(
    peers: Peers,
    control: RunControl,
    call: ScriptCall,
) -> Result<Settled, NodeFailure> {
    let _tracked = control.track(WorkKind::Call, call.effect_id.clone());
    tokio::select! {
        settled = ask_until_answered(peers, &call) => settled,
        () = control.cancelled() => {
            Err(NodeFailure::new(Category::Cancelled, "cancelled", "the run was ended while the script ran"))
        }
    }
}

async fn ask_until_answered(peers: Peers, call: &ScriptCall) -> Result<Settled, NodeFailure> {
    let request = ExecuteRequest {
        effect_id: call.effect_id.clone(),
        runtime: call.language.clone(),
        program: Some(Program::SourceText(call.code.clone())),
        input_json: call.input_json.clone(),
        limits: call.wall_millis.map(|millis| Limits {
            wall_time: Some(duration(millis)),
            ..Limits::default()
        }),
        ..ExecuteRequest::default()
    };
    let mut backoff = Backoff::new();
    let mut failures = 0;
    loop {
        let status = match peers.sandbox.clone().execute(request.clone()).await {
            Ok(response) => return read(response.into_inner()),
            Err(status) => status,
        };
        match status.code() {
            _ if is_worth_repeating(&status) => {}
            Code::Internal | Code::Unknown if failures < TRIES_AFTER_FAILURES => failures += 1,
            _ => return Err(refused(&status)),
        }
        backoff.wait(grpc_kit::retry_after(&status)).await;
    }
}

fn duration(millis: u64) -> prost_types::Duration {
    let seconds = i64::try_from(millis / 1_000).unwrap_or(i64::MAX);
    let nanos = i32::try_from(millis % 1_000).unwrap_or(0) * 1_000_000;
    prost_types::Duration { seconds, nanos }
}

/// Says why the sandbox did not run the script.
fn refused(status: &Status) -> NodeFailure {
    let category = match status.code() {
        Code::InvalidArgument => Category::Validation,
        Code::FailedPrecondition => Category::Policy,
        _ => Category::Dependency,
    };
    let code = code_of(status, "sandbox_failed");
    NodeFailure::new(
        category,
        code,
        format!("the sandbox did not run the script: {}", status.message()),
    )
}

/// Makes of the sandbox's answer what the node gets.
fn read(response: ExecuteResponse) -> Result<Settled, NodeFailure> {
    let verdict = response
        .verdict
        .as_ref()
        .and_then(|verdict| verdict.kind.clone());
    let stderr = String::from_utf8_lossy(&response.stderr).into_owned();
    let (category, code, message) = match verdict {
        Some(Verdict::Exited(exited)) if exited.code == 0 => return read_result(&response, stderr),
        Some(verdict) => judge(&verdict),
        None => (
            Category::Dependency,
            "no_verdict",
            "the sandbox gave no verdict".to_owned(),
        ),
    };
    let mut failure = NodeFailure::new(category, code, message).detail("verdict", code);
    if let Some(Verdict::Exited(exited)) = response.verdict.and_then(|verdict| verdict.kind) {
        failure = failure.detail("exit_code", exited.code);
    }
    Err(failure.detail("stderr", tail(&stderr)))
}

fn read_result(response: &ExecuteResponse, stderr: String) -> Result<Settled, NodeFailure> {
    let stdout = String::from_utf8_lossy(&response.stdout).into_owned();
    let result = match response.result_state() {
        ResultState::Json => wire::read_value(&response.result_json).map_err(|problem| {
            NodeFailure::new(
                Category::Runtime,
                "result_malformed",
                format!("the script's result is not usable: {problem}"),
            )
        })?,
        ResultState::Malformed => {
            let message =
                "the script wrote something to its result channel that is not one JSON value";
            return Err(
                NodeFailure::new(Category::Runtime, "result_malformed", message)
                    .detail("stderr", tail(&stderr)),
            );
        }
        ResultState::TooLarge => {
            return Err(NodeFailure::limit(
                "result_too_large",
                "the script's result is larger than the sandbox takes",
            ));
        }
        ResultState::None | ResultState::Unspecified => serde_json::Value::Null,
    };
    Ok(Settled::Script {
        result,
        stdout,
        stderr,
    })
}

fn judge(verdict: &Verdict) -> (Category, &'static str, String) {
    match verdict {
        Verdict::Exited(exited) => (
            Category::Runtime,
            "script_exited",
            format!("the script ended with code {}", exited.code),
        ),
        Verdict::Signalled(signalled) => (
            Category::Runtime,
            "script_signalled",
            format!("the script was ended by {}", signalled.name),
        ),
        Verdict::Wall(_) => (
            Category::Timeout,
            "wall_limit",
            "the script ran longer than it may".to_owned(),
        ),
        Verdict::Cpu(_) => (
            Category::Limit,
            "cpu_limit",
            "the script used more processor time than it may".to_owned(),
        ),
        Verdict::Memory(_) => (
            Category::Limit,
            "memory_limit",
            "the script used more memory than it may".to_owned(),
        ),
        Verdict::Processes(_) => (
            Category::Limit,
            "process_limit",
            "the script asked for too many processes".to_owned(),
        ),
        Verdict::Output(_) => (
            Category::Limit,
            "output_limit",
            "the script wrote more output than it may".to_owned(),
        ),
        Verdict::Disk(_) => (
            Category::Limit,
            "disk_limit",
            "the script filled its scratch space".to_owned(),
        ),
        Verdict::ForbiddenSyscall(_) => (
            Category::Policy,
            "forbidden_syscall",
            "the script made a system call that no script may make".to_owned(),
        ),
        Verdict::NetworkDenied(_) => (
            Category::Policy,
            "network_denied",
            "the script tried to use the network".to_owned(),
        ),
        Verdict::Policy(policy) => {
            let message = format!(
                "the policy {} wants {}, but {} was reached",
                policy.policy, policy.wanted, policy.reached
            );
            (Category::Policy, "policy_refused", message)
        }
        Verdict::Cancelled(_) => (
            Category::Cancelled,
            "cancelled",
            "the script was cancelled".to_owned(),
        ),
        Verdict::LauncherFailure(failure) => (
            Category::Dependency,
            "launcher_failure",
            format!("the isolation could not be set up: {}", failure.message),
        ),
    }
}

/// Returns the end of a text.
fn tail(text: &str) -> String {
    let characters = text.chars().count();
    text.chars()
        .skip(characters.saturating_sub(STDERR_TAIL))
        .collect()
}

#[cfg(test)]
mod tests {
    use contracts::tavern::sandbox::v1 as sandbox;
    use serde_json::json;

    use super::*;

    fn response(verdict: Verdict, state: ResultState, result: &str) -> ExecuteResponse {
        ExecuteResponse {
            verdict: Some(sandbox::Verdict {
                kind: Some(verdict),
            }),
            stdout: b"out".to_vec(),
            stderr: b"err".to_vec(),
            result_json: result.to_owned(),
            result_state: state.into(),
            ..ExecuteResponse::default()
        }
    }

    #[track_caller]
    fn check(response: ExecuteResponse, expected: Result<serde_json::Value, &str>) {
        let read = read(response).map_err(|failure| failure.code);
        let result = read.map(|settled| match settled {
            Settled::Script { result, .. } => result,
            other => panic!("{other:?}"),
        });
        assert_eq!(result, expected.map_err(str::to_owned));
    }

    #[test]
    fn only_a_script_that_ends_well_has_a_result() {
        let exited = |code| Verdict::Exited(sandbox::Exited { code });
        check(
            response(exited(0), ResultState::Json, "{\"n\":1.5}"),
            Ok(json!({"n": 1.5})),
        );
        check(response(exited(0), ResultState::None, ""), Ok(json!(null)));
        check(
            response(exited(0), ResultState::Malformed, ""),
            Err("result_malformed"),
        );
        check(
            response(exited(0), ResultState::TooLarge, ""),
            Err("result_too_large"),
        );
        check(
            response(exited(3), ResultState::Json, "1"),
            Err("script_exited"),
        );
        check(
            response(Verdict::Wall(Default::default()), ResultState::None, ""),
            Err("wall_limit"),
        );
        check(
            response(Verdict::Memory(Default::default()), ResultState::None, ""),
            Err("memory_limit"),
        );
        check(ExecuteResponse::default(), Err("no_verdict"));
    }

    #[test]
    fn a_failure_brings_code_and_the_end_of_standard_error() {
        let failed = read(response(
            Verdict::Exited(sandbox::Exited { code: 3 }),
            ResultState::None,
            "",
        ))
        .unwrap_err();
        assert_eq!(
            json!(failed.details),
            json!({"verdict": "script_exited", "exit_code": 3, "stderr": "err"})
        );
    }
}
