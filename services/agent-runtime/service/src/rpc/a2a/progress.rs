//! The progress of a task, from the log of its turn.

use std::collections::HashSet;

use contracts::in_doubt::CallsInDoubt;
use contracts::{
    lf::a2a::v1::{Message, Role, TaskState},
    tavern::common::v1::{
        CallInDoubt, CallResult, Run, RunEvent, RunOutcome, RunState, Wait, WaitKind, WakeCause,
        run_event::Kind,
    },
    watch::voids_answer,
};
use prost_types::Timestamp;
use serde_json::{Value, json};

use super::parts;

/// The most messages of a history, and the most bytes of them.
const MAX_HISTORY: (usize, usize) = (50, 1 << 20);

/// The progress of a turn. It follows from the events of its log, with the events of the runs below
/// it.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress {
    /// The questions that the turn waits for, the oldest first.
    questions: Vec<Question>,
    /// The calls in doubt, on which the turn waits.
    in_doubt: CallsInDoubt,
    /// The ids of the messages that arrived.
    delivered: HashSet<String>,
    /// The messages so far, the oldest first.
    history: Vec<Message>,
    /// Whether the history is not collected, as no reader needs it.
    forgets: bool,
    has_begun: bool,
    is_queued: bool,
    /// The text of the model since its last request.
    pub(super) answer: String,
    /// The number of times that the text of the model was void.
    pub(super) generation: u64,
    /// The event that was read last.
    pub(super) sequence: u64,
    /// The time of the last change of the state.
    pub(super) changed: Option<Timestamp>,
    /// The outcome of the turn.
    pub(super) outcome: Option<RunOutcome>,
}

/// A question to a person.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Question {
    /// The run of the question, below the run of the turn.
    pub(super) run_id: String,
    pub(super) wait: Wait,
}

impl Question {
    /// Returns the question as a message of the agent.
    pub(super) fn message(&self) -> Message {
        let wait = &self.wait;
        let parsed = |text: &str| serde_json::from_str::<Value>(text).ok();
        let choices = wait.choices.iter();
        let choices: Vec<Value> = choices
            .map(|choice| json!({"value": choice.value, "label": choice.label}))
            .collect();
        let known = [
            (
                "choices",
                Some(choices).filter(|c| !c.is_empty()).map(Value::Array),
            ),
            ("schema", parsed(&wait.schema_json)),
            ("context", parsed(&wait.context_json)),
        ];
        let known = known.into_iter();
        let known: serde_json::Map<String, Value> = known
            .filter_map(|(key, value)| Some((key.to_owned(), value?)))
            .collect();
        let mut said = vec![parts::text(wait.name.clone())];
        if !known.is_empty() {
            said.push(parts::data(&Value::Object(known)));
        }
        parts::message(Role::Agent, wait.wait_id.clone(), said)
    }
}

impl Progress {
    /// Returns the progress that the resource of a run shows without its log.
    pub(super) fn of(run: &Run) -> Self {
        Self {
            // A failure before the first round is found in the log.
            has_begun: true,
            is_queued: run.state() == RunState::Queued,
            sequence: run.last_sequence,
            changed: run.finish_time.or(run.create_time),
            outcome: run.outcome.clone(),
            ..Self::default()
        }
    }

    /// Applies the next event of the log of `run`.
    pub(super) fn note(&mut self, run: &Run, event: &RunEvent) {
        self.sequence = event.sequence;
        let before = self.state();
        let id = |given: &str| match given {
            "" => format!("{}/{}", run.run_id, event.sequence),
            given => given.to_owned(),
        };
        let is_own = event.parent_path.is_empty();
        self.in_doubt.note(event);
        match &event.kind {
            Some(Kind::NodeWaiting(waiting)) => {
                let wait = waiting.wait.clone().unwrap_or_default();
                if wait.kind() == WaitKind::HumanInput {
                    let run_id = event.run_id.clone();
                    let question = Question { run_id, wait };
                    self.say(question.message());
                    self.questions.push(question);
                }
            }
            Some(Kind::NodeWoken(woken)) => {
                self.close_question(&woken.wait_id);
                if woken.cause() == WakeCause::Answer {
                    self.delivered.insert(woken.request_id.clone());
                    self.hear(id(&woken.request_id), text_of(&woken.payload_json));
                }
            }
            Some(Kind::CallSettled(settled)) => {
                // A question that stays open when its call has ended is not waited for.
                let asked = settled.result.as_ref().and_then(asked_by);
                self.questions
                    .retain(|question| Some(&question.run_id) != asked.as_ref());
            }
            Some(Kind::RunFinished(finished)) if is_own => {
                self.outcome.clone_from(&finished.outcome);
                self.questions.clear();
            }
            Some(Kind::RunFinished(_)) => self
                .questions
                .retain(|question| question.run_id != event.run_id),
            Some(own) if is_own => self.note_own(own, &id, run),
            _ => {}
        }
        if self.changed.is_none() || before != self.state() {
            self.changed = event.time;
        }
    }

    fn note_own(&mut self, kind: &Kind, id: &dyn Fn(&str) -> String, run: &Run) {
        match kind {
            Kind::RunStarted(started) => {
                self.hear(id(&run.request_id), text_of(&started.input_json));
            }
            Kind::RunQueued(_) => self.is_queued = true,
            Kind::RunDequeued(_) => self.is_queued = false,
            Kind::IterationStarted(_) => self.has_begun = true,
            Kind::SteeringAccepted(steering) => {
                self.delivered.insert(steering.request_id.clone());
                self.hear(id(&steering.request_id), steering.message.clone());
            }
            Kind::ModelRequested(_) => self.begin_answer(),
            Kind::OutputReset(reset) if voids_answer(reset) => self.begin_answer(),
            Kind::Text(delta) => self.answer.push_str(&delta.text),
            _ => {}
        }
    }

    fn begin_answer(&mut self) {
        self.answer.clear();
        self.generation += 1;
    }

    fn hear(&mut self, message_id: String, text: String) {
        self.say(parts::message(
            Role::User,
            message_id,
            vec![parts::text(text)],
        ));
    }

    /// Adds a message to the history, from which the oldest are dropped.
    fn say(&mut self, message: Message) {
        if self.forgets {
            return;
        }
        self.history.push(message);
        let bytes = |history: &[Message]| -> usize {
            history.iter().map(prost::Message::encoded_len).sum()
        };
        while self.history.len() > MAX_HISTORY.0
            || (self.history.len() > 1 && bytes(&self.history) > MAX_HISTORY.1)
        {
            self.history.remove(0);
        }
    }

    /// Notes that a question is answered, which its run records before the turn does.
    pub(super) fn close_question(&mut self, wait_id: &str) {
        self.questions
            .retain(|question| question.wait.wait_id != wait_id);
    }

    /// Returns the oldest question that the turn waits for.
    pub(super) fn question(&self) -> Option<&Question> {
        self.questions.first()
    }

    /// Returns the oldest call in doubt.
    pub(super) fn call_in_doubt(&self) -> Option<&CallInDoubt> {
        self.in_doubt.iter().next()
    }

    /// Whether a message has arrived before.
    pub(super) fn has(&self, message_id: &str) -> bool {
        self.delivered.contains(message_id)
    }

    /// Drops the messages so far, and those to come.
    pub(super) fn forget_history(&mut self) {
        self.history = Vec::new();
        self.forgets = true;
    }

    /// Returns the last `most` messages.
    pub(super) fn last_messages(&self, most: usize) -> &[Message] {
        &self.history[self.history.len().saturating_sub(most)..]
    }

    /// Whether the turn has ended or waits for a person.
    pub(super) fn is_settled(&self) -> bool {
        self.outcome.is_some() || self.requires_input()
    }

    fn requires_input(&self) -> bool {
        !self.questions.is_empty() || self.call_in_doubt().is_some()
    }

    /// Returns the state of the task (rule G903).
    pub(super) fn state(&self) -> TaskState {
        match self.outcome.as_ref().map(RunOutcome::state) {
            None if self.is_queued => TaskState::Submitted,
            None if self.requires_input() => TaskState::InputRequired,
            None => TaskState::Working,
            Some(RunState::Succeeded) => TaskState::Completed,
            Some(RunState::Cancelled) => TaskState::Canceled,
            Some(RunState::Failed) if !self.has_begun => TaskState::Rejected,
            Some(_) => TaskState::Failed,
        }
    }
}

/// Returns the text of a JSON string; other JSON is its own text.
pub(super) fn text_of(json: &str) -> String {
    serde_json::from_str(json).unwrap_or_else(|_| json.to_owned())
}

/// Returns the run of a question by the result of the call that asked it.
fn asked_by(result: &CallResult) -> Option<String> {
    let output: Value = serde_json::from_str(&result.output_json).ok()?;
    Some(output["interaction_id"].as_str()?.to_owned())
}
