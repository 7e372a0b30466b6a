//! Running a script in the sandbox. A script has no effect outside, so it may run again.
//!
//! Its output is recorded in the run while the script writes it.

use std::pin::pin;

use call_outcome::{Category, Failure, Written, tail};
use contracts::tavern::common::v1::{OutputStream, WorkKind};
use contracts::tavern::sandbox::v1::{
    ExecuteRequest, ExecuteResponse, Limits, ResultState, execute_request::Program,
};
use futures::StreamExt;
use run_client::Tries;
use run_events::RunControl;
use run_log::AppendError;
use script_client::ScriptEvent;
use serde_json::Value;
use tonic::{Code, Status};

use crate::wire;
use workflow_domain::data_flow::DataFlow;
use workflow_domain::node_type::Settled;

use super::node_output::NodeOutput;
use super::yielded::Yielded;
use super::{Clients, code_of};

/// The length of the end of standard error in the details of a failure, in characters.
const STDERR_TAIL: usize = 2_000;

/// The request of a script node.
#[derive(Clone, Debug)]
pub(super) struct ScriptCall {
    pub(super) effect_id: String,
    pub(super) conversation_id: String,
    pub(super) language: String,
    pub(super) code: String,
    pub(super) input_json: String,
    pub(super) wall_millis: Option<u64>,
    /// The type of the values that it yields; none if it writes text.
    pub(super) yields: Option<DataFlow>,
}

/// The failure of one attempt.
enum ExecuteError {
    Sandbox(Status),
    Log(AppendError),
    /// Its yielded values are not usable.
    Malformed(Failure),
}

impl From<AppendError> for ExecuteError {
    fn from(error: AppendError) -> Self {
        Self::Log(error)
    }
}

/// Runs a script to its end. A cancel of the run drops the request, which kills the script.
///
/// # Errors
/// The run's log rejects events, so the run cannot continue now.
pub(super) async fn execute(
    peers: Clients,
    output: NodeOutput,
    control: RunControl,
    call: ScriptCall,
) -> Result<Result<Settled, Failure>, AppendError> {
    let _tracked = control.track(WorkKind::Call, call.effect_id.clone());
    tokio::select! {
        settled = ask_until_answered(peers, output, &call) => settled,
        () = control.cancelled() => {
            Ok(Err(Failure::new(Category::Cancelled, "cancelled", "the run was ended while the script ran")))
        }
    }
}

async fn ask_until_answered(
    peers: Clients,
    mut output: NodeOutput,
    call: &ScriptCall,
) -> Result<Result<Settled, Failure>, AppendError> {
    let request = ExecuteRequest {
        effect_id: call.effect_id.clone(),
        conversation_id: call.conversation_id.clone(),
        runtime: call.language.clone(),
        program: Some(Program::SourceText(call.code.clone())),
        input_json: call.input_json.clone(),
        limits: call.wall_millis.map(|millis| Limits {
            wall_time: Some(duration(millis)),
            ..Limits::default()
        }),
        ..ExecuteRequest::default()
    };
    let mut tries = Tries::default();
    loop {
        let mut yielded = call.yields.map(Yielded::new);
        let status = match ask(&peers, &request, &mut output, &mut yielded).await {
            Ok(response) => {
                let values = yielded.map(Yielded::into_values);
                return Ok(read(response, values, &call.language));
            }
            Err(ExecuteError::Log(error)) => return Err(error),
            Err(ExecuteError::Malformed(failure)) => return Ok(Err(failure)),
            Err(ExecuteError::Sandbox(status)) => status,
        };
        if !tries.wait_after(&status).await {
            return Ok(Err(refused(&status)));
        }
    }
}

/// Runs the script once.
async fn ask(
    peers: &Clients,
    request: &ExecuteRequest,
    output: &mut NodeOutput,
    yielded: &mut Option<Yielded>,
) -> Result<ExecuteResponse, ExecuteError> {
    output.begin().await?;
    let mut events = pin!(script_client::run(
        &peers.sandbox,
        &peers.context,
        request.clone()
    ));
    while let Some(event) = events.next().await {
        match (
            event.map_err(|broken| ExecuteError::Sandbox(broken.status))?,
            yielded.as_mut(),
        ) {
            (ScriptEvent::Output(OutputStream::Out, text), Some(yielded)) => {
                let lines = yielded.push(&text).map_err(ExecuteError::Malformed)?;
                output.write_lines(lines).await?;
            }
            (ScriptEvent::Output(stream, text), _) => output.write(stream, text).await?,
            (ScriptEvent::Progress(report), _) => output.report(report).await?,
            (ScriptEvent::Ended(response), yielded) => {
                if let Some(yielded) = yielded {
                    let lines = yielded.finish().map_err(ExecuteError::Malformed)?;
                    output.write_lines(lines).await?;
                }
                return Ok(*response);
            }
        }
    }
    unreachable!("the events of a script end with its end or an error")
}

fn duration(millis: u64) -> prost_types::Duration {
    let seconds = i64::try_from(millis / 1_000).unwrap_or(i64::MAX);
    let nanos = i32::try_from(millis % 1_000).unwrap_or(0) * 1_000_000;
    prost_types::Duration { seconds, nanos }
}

/// Returns the reason for which the sandbox did not run the script.
fn refused(status: &Status) -> Failure {
    let category = match status.code() {
        Code::InvalidArgument => Category::Validation,
        Code::FailedPrecondition => Category::Policy,
        _ => Category::Dependency,
    };
    let code = code_of(status, "sandbox_failed");
    Failure::new(
        category,
        code,
        format!("the sandbox did not run the script: {}", status.message()),
    )
}

/// Converts the sandbox's answer to the node's result.
fn read(
    response: ExecuteResponse,
    values: Option<Value>,
    language: &str,
) -> Result<Settled, Failure> {
    let written = Written::from_bytes(&response.stdout, &response.stderr);
    let verdict = response.verdict.as_ref();
    match call_wire::exit_code(verdict) {
        Some(0) => read_result(&response, values, &written),
        _ => Err(call_wire::script_failure(verdict, language, &written)),
    }
}

fn read_result(
    response: &ExecuteResponse,
    values: Option<Value>,
    written: &Written<'_>,
) -> Result<Settled, Failure> {
    let result = match response.result_state() {
        ResultState::Json => wire::read_value(&response.result_json).map_err(|problem| {
            Failure::new(
                Category::Runtime,
                "result_malformed",
                format!("the script's result is not usable: {problem}"),
            )
        })?,
        ResultState::Malformed => {
            let message =
                "the script wrote something to its result channel that is not one JSON value";
            return Err(Failure::new(Category::Runtime, "result_malformed", message)
                .detail("stderr", tail(&written.stderr, STDERR_TAIL)));
        }
        ResultState::TooLarge => {
            return Err(Failure::limit(
                "result_too_large",
                "the script's result is larger than the sandbox takes",
            ));
        }
        ResultState::None | ResultState::Unspecified => Value::Null,
    };
    Ok(Settled::Script {
        result,
        written: values.unwrap_or_else(|| Value::from(written.stdout.as_ref())),
        stderr: written.stderr.clone().into_owned(),
    })
}

#[cfg(test)]
mod tests {
    use contracts::tavern::sandbox::v1::{self as sandbox, verdict::Kind};
    use serde_json::json;

    use super::*;

    fn response(verdict: Kind, state: ResultState, result: &str) -> ExecuteResponse {
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
    fn check(response: ExecuteResponse, expected: Result<Value, &str>) {
        let read = read(response, None, "python3").map_err(|failure| failure.code.clone());
        let result = read.map(|settled| match settled {
            Settled::Script { result, .. } => result,
            other => panic!("{other:?}"),
        });
        assert_eq!(result, expected.map_err(str::to_owned));
    }

    #[test]
    fn only_a_script_that_ends_well_has_a_result() {
        let exited = |code| Kind::Exited(sandbox::Exited { code });
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
            response(Kind::Wall(Default::default()), ResultState::None, ""),
            Err("wall_limit"),
        );
        check(
            response(Kind::Cancelled(Default::default()), ResultState::None, ""),
            Err("cancelled"),
        );
        check(ExecuteResponse::default(), Err("sandbox_failed"));
    }
}
