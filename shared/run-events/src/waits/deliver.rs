//! Signals and answers that arrive at a run.

use contracts::tavern::common::v1::run_event::Kind;
use contracts::tavern::common::v1::{self as common, ErrorReason, WaitKind, WakeCause};
use contracts::tavern::run::v1::{AnswerWaitRequest, SignalRunRequest};
use grpc_kit::{CallContext, Failure};
use json_schema::{Schema, nearest_names, parse_json_strict};
use run_log::AppendError;
use serde_json::Value;
use tonic::Code;

use super::Waits;
use super::board::{RecordedWaits, answer_key, digest, signal_key, woken_by_signal};
use crate::failure::append_failure;

/// The most signals that a run keeps and nothing has consumed.
const MAX_KEPT_SIGNALS: usize = 1_000;

/// The most bytes that the payloads of such signals have together.
const MAX_KEPT_BYTES: usize = 4 * 1024 * 1024;

/// The most signals of a run.
const MAX_SIGNALS: usize = 100_000;

impl Waits {
    /// Records a signal and wakes the oldest wait for its name. Returns whether its id was seen before.
    ///
    /// # Errors
    /// INVALID_FIELDS, REQUEST_ID_REUSED, LIMIT_EXCEEDED, RUN_FINISHED, or a storage that does not work.
    pub(crate) async fn signal(
        &self,
        context: &CallContext,
        request: SignalRunRequest,
    ) -> Result<bool, Failure> {
        let payload = self.check_signal(&request)?;
        let signal = common::SignalReceived {
            name: request.name,
            signal_id: request.signal_id,
            payload_json: payload.to_string(),
            principal: context.principal().recorded().to_owned(),
        };
        let mut board = self.inner.board.lock().await;
        board.forget_dropped();
        let used_for = digest(&signal.principal, &signal.name, &signal.payload_json);
        if let Some(replayed) = replayed(
            &board,
            &signal_key(&signal.signal_id),
            used_for,
            "signal_id",
        )? {
            return Ok(replayed);
        }
        if board.is_closed() {
            return Err(append_failure(&AppendError::Finished));
        }
        let woken = board
            .oldest_for(&signal.name)
            .map(|wait| woken_by_signal(wait, &signal));
        if woken.is_none() {
            check_room(&board, &signal)?;
        }
        let received = Kind::SignalReceived(signal.clone());
        let events = std::iter::once(received).chain(woken.clone().map(Kind::NodeWoken));
        self.record(events.collect()).await?;
        board.receive(signal);
        if let Some(woken) = woken {
            board.wake(&woken);
        }
        Ok(false)
    }

    /// Records the answer of a person and wakes the wait. Returns whether its request was seen before.
    ///
    /// # Errors
    /// NOT_WAITING, INVALID_FIELDS, REQUEST_ID_REUSED, RUN_FINISHED, or a storage that does not work.
    pub async fn answer(
        &self,
        context: &CallContext,
        request: AnswerWaitRequest,
    ) -> Result<bool, Failure> {
        let answer = parse("answer_json", &request.answer_json)?;
        let answer_json = answer.to_string();
        let answered_by = context.caller_name("answered_by", request.answered_by)?;
        let principal = context.principal().recorded();
        let key = answer_key(&request.request_id);
        let mut board = self.inner.board.lock().await;
        board.forget_dropped();
        let used_for = digest(principal, &request.wait_id, &answer_json);
        if let Some(replayed) = replayed(&board, &key, used_for, "request_id")? {
            return Ok(replayed);
        }
        let wait = board.find(&request.wait_id);
        let wait = wait.filter(|wait| wait.kind() == WaitKind::HumanInput);
        let wait = wait.ok_or_else(|| not_waiting(&request.run_id, &request.wait_id))?;
        check_answer(wait, &answer)?;
        let woken = common::NodeWoken {
            wait_id: wait.wait_id.clone(),
            node_id: wait.node_id.clone(),
            cause: WakeCause::Answer.into(),
            payload_json: answer_json,
            request_id: request.request_id,
            answered_by,
            principal: principal.to_owned(),
        };
        self.record(vec![Kind::NodeWoken(woken.clone())]).await?;
        board.see(&key, used_for);
        board.wake(&woken);
        Ok(false)
    }

    fn check_signal(&self, request: &SignalRunRequest) -> Result<Value, Failure> {
        let declared = &self.inner.declared;
        let Some(schemas) = declared.get(&request.name) else {
            let known = declared.keys().map(String::as_str);
            let mut problem = "is not the name of a signal that the run waits for".to_owned();
            if let [nearest, ..] = nearest_names(&request.name, known).as_slice() {
                problem.push_str(&format!("; did you mean `{nearest}`?"));
            }
            return Err(Failure::invalid_fields().violation("name", problem));
        };
        let text = match request.payload_json.as_str() {
            "" => "null",
            text => text,
        };
        let payload = parse("payload_json", text)?;
        for schema in schemas.iter().filter(|schema| !schema.is_null()) {
            check_schema("payload_json", schema, &payload)?;
        }
        Ok(payload)
    }

    async fn record(&self, events: Vec<Kind>) -> Result<(), Failure> {
        let recorded = self.inner.recorder.record(events).await;
        recorded.map(drop).map_err(|error| append_failure(&error))
    }
}

/// Reports that nothing waits under an id.
pub(crate) fn not_waiting(run_id: &str, wait_id: &str) -> Failure {
    let message = "nothing in the run waits under this id; list the waits of the run";
    Failure::new(Code::FailedPrecondition, ErrorReason::NotWaiting, message)
        .metadata("run_id", run_id)
        .metadata("wait_id", wait_id)
}

/// Returns true for a request that was carried out before.
fn replayed(
    board: &RecordedWaits,
    key: &Option<String>,
    used_for: run_log::Hash,
    field: &str,
) -> Result<Option<bool>, Failure> {
    match board.seen(key, used_for) {
        Some(false) => {
            let message = format!(
                "the {field} was used with another body or by another caller; use a new one"
            );
            let failure = Failure::new(Code::AlreadyExists, ErrorReason::RequestIdReused, message);
            Err(failure)
        }
        seen => Ok(seen),
    }
}

fn check_room(board: &RecordedWaits, signal: &common::SignalReceived) -> Result<(), Failure> {
    let (count, bytes) = board.kept_signals();
    let bytes = bytes + signal.payload_json.len();
    for (limit, maximum, observed) in [
        ("kept_signals", MAX_KEPT_SIGNALS, count + 1),
        ("kept_signal_bytes", MAX_KEPT_BYTES, bytes),
        ("signals", MAX_SIGNALS, board.received() + 1),
    ] {
        if observed > maximum {
            return Err(Failure::limit_exceeded(limit, maximum, observed));
        }
    }
    Ok(())
}

/// Checks that an answer is one of the choices or fits the schema, where there are any.
fn check_answer(wait: &common::Wait, answer: &Value) -> Result<(), Failure> {
    let chosen = answer.as_str();
    let mut choices = wait.choices.iter();
    if choices.any(|choice| Some(choice.value.as_str()) == chosen) {
        return Ok(());
    }
    if !wait.schema_json.is_empty() {
        let schema = parse("answer_json", &wait.schema_json)?;
        return check_schema("answer_json", &schema, answer);
    }
    if wait.choices.is_empty() {
        return Ok(());
    }
    let values: Vec<String> = wait
        .choices
        .iter()
        .map(|choice| format!("{:?}", choice.value))
        .collect();
    let problem = format!("is not one of the choices: {}", values.join(", "));
    Err(Failure::invalid_fields().violation("answer_json", problem))
}

fn parse(field: &str, text: &str) -> Result<Value, Failure> {
    parse_json_strict(text).map_err(|error| {
        let problems = error.problems.iter();
        problems.fold(Failure::invalid_fields(), |failure, problem| {
            let place = format!("{field}{}", problem.pointer);
            failure.violation(place, problem.kind.to_string())
        })
    })
}

fn check_schema(field: &str, schema: &Value, value: &Value) -> Result<(), Failure> {
    let schema = Schema::compile(schema)
        .map_err(|errors| Failure::invalid_fields().violation(field, errors.to_string()))?;
    let violations = schema.validate(value);
    if violations.is_empty() {
        return Ok(());
    }
    let failure = Failure::invalid_fields();
    Err(violations.iter().fold(failure, |failure, violation| {
        let place = format!("{field}{}", violation.pointer);
        failure.violation(place, violation.message.clone())
    }))
}
