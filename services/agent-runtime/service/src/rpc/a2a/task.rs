//! A turn as a task.

use std::borrow::Cow;

use contracts::{
    lf::a2a::v1::{Artifact, Message, Role, Task, TaskState, TaskStatus},
    tavern::common::v1::{CallInDoubt, Run, RunOutcome, RunState},
};
use grpc_kit::Failure;
use serde_json::json;

use super::{
    parts,
    progress::{Progress, text_of},
    value,
};

/// The only artifact of a task.
const ANSWER: &str = "answer";

/// The parts of a task to show.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    /// The most messages of its history.
    history: usize,
    /// Whether its answer is shown.
    artifacts: bool,
}

impl View {
    /// Shows a whole task, with the requested length of its history.
    pub(super) fn of_one(history_length: Option<i32>) -> Result<Self, Failure> {
        Self::new(history_length.unwrap_or(i32::MAX), true)
    }

    /// Shows a task of a list.
    pub(super) fn listed(history_length: Option<i32>, artifacts: bool) -> Result<Self, Failure> {
        Self::new(history_length.unwrap_or(0), artifacts)
    }

    fn new(history_length: i32, artifacts: bool) -> Result<Self, Failure> {
        let history = usize::try_from(history_length).map_err(|_| {
            Failure::invalid_fields().violation("history_length", "is negative; leave it out")
        })?;
        Ok(Self { history, artifacts })
    }

    /// Whether the resource of a run has all shown parts.
    pub(super) fn is_known_without_log(self, run: &Run) -> bool {
        let ended = run.outcome.is_some() && run.state() != RunState::Failed;
        self.history == 0 && (ended || run.state() == RunState::Queued)
    }
}

/// Writes a task.
pub(super) fn write(run: &Run, progress: &Progress, view: View) -> Task {
    let mut metadata = vec![("sequence", json!(progress.sequence))];
    if let Some(outcome) = &progress.outcome {
        let reason = outcome.stop_reason().as_str_name();
        let reason = reason.trim_start_matches("STOP_REASON_").to_lowercase();
        metadata.push(("stop_reason", json!(reason)));
    }
    let answer = answer(progress);
    let history = progress.last_messages(view.history).iter();
    Task {
        id: run.run_id.clone(),
        context_id: run.conversation_id.clone(),
        status: Some(status(run, progress)),
        artifacts: match view.artifacts && !answer.is_empty() {
            true => vec![artifact(&answer)],
            false => Vec::new(),
        },
        history: history.map(|said| of_task(run, said.clone())).collect(),
        metadata: Some(value::fields(metadata)),
    }
}

/// Writes the status of a task.
pub(super) fn status(run: &Run, progress: &Progress) -> TaskStatus {
    let state = progress.state();
    let message = match (state, &progress.outcome) {
        (TaskState::InputRequired, _) => required_input(progress),
        (TaskState::Failed | TaskState::Rejected, Some(outcome)) => Some(failure(run, outcome)),
        _ => None,
    };
    TaskStatus {
        state: state.into(),
        message: message.map(|message| of_task(run, message)),
        timestamp: progress.changed,
    }
}

/// Writes the answer as an artifact.
pub(super) fn artifact(text: &str) -> Artifact {
    Artifact {
        artifact_id: ANSWER.to_owned(),
        name: ANSWER.to_owned(),
        parts: vec![parts::text(text)],
        ..Artifact::default()
    }
}

/// Returns the answer: the result of a turn that succeeded, before that the text of its model so
/// far.
pub(super) fn answer(progress: &Progress) -> Cow<'_, str> {
    let outcome = progress.outcome.as_ref();
    match outcome.filter(|outcome| outcome.state() == RunState::Succeeded) {
        Some(outcome) => text_of(&outcome.result_json).into(),
        None => progress.answer.as_str().into(),
    }
}

/// Writes the oldest question of a turn, else its oldest call in doubt.
pub(super) fn required_input(progress: &Progress) -> Option<Message> {
    match progress.question() {
        Some(question) => Some(question.message()),
        None => progress.call_in_doubt().map(doubt),
    }
}

/// Writes that a call is in doubt, with the decision to make.
fn doubt(call: &CallInDoubt) -> Message {
    let (tool, effect, attempt) = (&call.tool_id, &call.effect_id, call.attempt);
    let error = call.error.clone().unwrap_or_default();
    let text = format!(
        "It is not known whether {tool} took effect: {}. The task waits until a person decides about the effect \
         `{effect}` in Tavern: on the page, by `tavern calls resolve` or by CallService.ResolveCall. A message \
         for the task does not decide it.",
        error.message.trim_end_matches('.')
    );
    let id = format!("{effect}/{attempt}");
    problem(id, text, &error.code, &[effect])
}

/// Writes the reason of a turn's failure.
fn failure(run: &Run, outcome: &RunOutcome) -> Message {
    let error = outcome.error.clone().unwrap_or_default();
    let effects: Vec<&String> = outcome.unsettled_effect_ids.iter().collect();
    let id = format!("{}/end", run.run_id);
    problem(id, error.message, &error.code, &effects)
}

/// Writes a problem with its code and the effects in doubt.
fn problem(id: String, text: String, code: &str, effect_ids: &[&String]) -> Message {
    let metadata = value::fields([("code", json!(code)), ("effect_ids", json!(effect_ids))]);
    Message {
        metadata: Some(metadata),
        ..parts::message(Role::Agent, id, vec![parts::text(text)])
    }
}

fn of_task(run: &Run, message: Message) -> Message {
    Message {
        context_id: run.conversation_id.clone(),
        task_id: run.run_id.clone(),
        ..message
    }
}
