//! The places at which a turn can be forked, and the first events of its fork (rule G1003).

use std::collections::HashMap;

use agent_domain::spelling;
use contracts::tavern::common::v1::{self as common, RunEvent, run_event::Kind};
use core_types::Timestamp;
use serde_json::Value;

use crate::replay::time_of;

/// The most events that are taken over.
const MAX_EVENTS: usize = 1_000;
/// The most bytes of them in all.
const MAX_BYTES: usize = 7 << 20;
/// The most places that are named if a turn cannot be forked at an event.
const MAX_NAMED: usize = 20;

/// The replacement of an original event in a fork.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// The whole answer.
    Answer(String),
    /// The output of a call.
    Output(Value),
    /// The error message of a call.
    Failure(String),
    /// The message of a person.
    Message(String),
}

/// The beginning of a fork.
#[derive(Clone, Debug)]
pub struct Beginning {
    /// The input of the turn, as JSON.
    pub input_json: String,
    /// Whether the input is text of a model.
    pub input_is_model_text: bool,
    /// The events after the start of the run.
    pub first_events: Vec<Kind>,
    /// The time at which the fork reads the states.
    pub time: Timestamp,
}

/// The reason for not forking a turn.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForkError {
    /// A turn cannot be forked at this event.
    #[error("is not an event at which the turn can be forked; use one of {0}")]
    NotForkable(String),
    /// The edit does not match the kind of the event.
    #[error(
        "does not fit the event, which is {0}; an answer takes answer_text, a result output_json or \
         failure_message, a message takes message"
    )]
    WrongEdit(&'static str),
    /// Calls of the answer are in doubt.
    #[error("the outcome of calls in the answer is unknown")]
    InDoubt(Vec<String>),
    /// The events to be taken over exceed the bounds.
    #[error(
        "{events} events with {bytes} bytes would be taken over, but at most {MAX_EVENTS} with {MAX_BYTES} are allowed"
    )]
    TooLarge {
        /// The number of events.
        events: usize,
        /// Their size.
        bytes: usize,
    },
}

/// An answer with all events that follow from it.
struct Segment<'a> {
    /// The place of the request, or of the start of the run.
    asked: usize,
    /// The number of the answer; 0 for the text of a caller.
    number: u32,
    /// The events after the request and before the next one.
    events: &'a [RunEvent],
    answered: Option<&'a common::ModelAnswered>,
}

/// Returns the beginning of a fork of a turn, from the turn's own events.
///
/// # Errors
/// A place or an edit that the turn does not allow, or too many events.
pub fn fork(own: &[RunEvent], sequence: u64, edit: Option<&Edit>) -> Result<Beginning, ForkError> {
    let found = own.iter().position(|event| event.sequence == sequence);
    let place = found.filter(|place| is_place(own, *place));
    let (Some(place), Some(Kind::RunStarted(started))) =
        (place, own.first().and_then(|first| first.kind.as_ref()))
    else {
        return Err(ForkError::NotForkable(places(own)));
    };
    let mut beginning = Beginning {
        input_json: started.input_json.clone(),
        input_is_model_text: started.input_is_model_text,
        first_events: Vec::new(),
        time: time_of(&own[place]),
    };
    let mut forked = common::TurnForked {
        run_id: own[place].run_id.clone(),
        sequence,
        edited: edit.is_some(),
        ..common::TurnForked::default()
    };
    let mut taken = Vec::new();
    let copied = match &own[place].kind {
        Some(Kind::RunStarted(_)) => {
            if let Some(text) = message(edit)? {
                beginning.input_json = Value::from(text).to_string();
            }
            given(own)
        }
        Some(Kind::Steered(_)) => {
            let mut copied = copied(&own[1..=place], 3);
            if let Some(text) = message(edit)? {
                steer_otherwise(&mut copied, text);
            }
            copied
        }
        _ => {
            let segment = segment(own, place);
            beginning.time = time_of(&own[segment.asked]);
            let answer = answer(&segment, &own[place], edit)?;
            taken = results(&segment, sequence, edit);
            let answer_is_edited = matches!(edit, Some(Edit::Answer(_)));
            let in_doubt = taken.iter().filter(|taken| is_in_doubt(taken));
            let in_doubt: Vec<String> = in_doubt.map(effect_of).collect();
            if !answer_is_edited && !in_doubt.is_empty() {
                return Err(ForkError::InDoubt(in_doubt));
            }
            forked.answer = Some(answer);
            let first = 3 + taken.len() as u64;
            match segment.asked {
                0 => given(own),
                asked => copied(&own[1..=asked], first),
            }
        }
    };
    let taken = taken.into_iter().map(Kind::ResultTaken).chain(copied);
    let taken: Vec<Kind> = taken.collect();
    let bytes = taken.iter().map(Kind::encoded_len).sum();
    if taken.len() > MAX_EVENTS || bytes > MAX_BYTES {
        let events = taken.len();
        return Err(ForkError::TooLarge { events, bytes });
    }
    forked.taken_events = u32::try_from(taken.len()).unwrap_or(u32::MAX);
    beginning.first_events = std::iter::once(Kind::TurnForked(forked))
        .chain(taken)
        .collect();
    Ok(beginning)
}

/// Whether a turn can be forked at one of its events.
fn is_place(own: &[RunEvent], place: usize) -> bool {
    match &own[place].kind {
        Some(Kind::RunStarted(started)) => !started.input_json.starts_with('['),
        Some(Kind::Steered(_) | Kind::ModelAnswered(_)) => true,
        Some(Kind::CallSettled(settled)) => {
            let segment = segment(own, place);
            let is_whole = segment.number == 0 || segment.answered.is_some();
            let index = settled.result.as_ref().map(|result| result.index);
            let mut sent = segment.events.iter().filter_map(sent);
            is_whole && sent.any(|sent| Some(sent.index) == index)
        }
        _ => false,
    }
}

/// Names the events at which a turn can be forked.
fn places(own: &[RunEvent]) -> String {
    let places = (0..own.len()).filter(|place| is_place(own, *place));
    let named = places.map(|place| {
        let what = match &own[place].kind {
            Some(Kind::ModelAnswered(_)) => "an answer",
            Some(Kind::CallSettled(_)) => "a result",
            _ => "a message",
        };
        format!("{} ({what})", own[place].sequence)
    });
    let named: Vec<String> = named.take(MAX_NAMED).collect();
    named.join(", ")
}

fn segment(own: &[RunEvent], place: usize) -> Segment<'_> {
    let is_request = |at: &usize| matches!(own[*at].kind, Some(Kind::ModelRequested(_)));
    let asked = (0..place).rev().find(is_request).unwrap_or_default();
    let end = (asked + 1..own.len()).find(is_request).unwrap_or(own.len());
    let before = own[..asked].iter().filter_map(answered).count();
    let events = &own[asked + 1..end];
    Segment {
        asked,
        number: u32::try_from(before).unwrap_or(u32::MAX) + u32::from(asked > 0),
        events,
        answered: events.iter().find_map(answered),
    }
}

fn answered(event: &RunEvent) -> Option<&common::ModelAnswered> {
    match &event.kind {
        Some(Kind::ModelAnswered(answered)) => Some(answered),
        _ => None,
    }
}

fn sent(event: &RunEvent) -> Option<&common::CallDispatched> {
    match &event.kind {
        Some(Kind::CallDispatched(sent)) => Some(sent),
        _ => None,
    }
}

/// Returns the message that replaces the original in a fork.
fn message(edit: Option<&Edit>) -> Result<Option<&str>, ForkError> {
    match edit {
        None => Ok(None),
        Some(Edit::Message(text)) => Ok(Some(text)),
        Some(_) => Err(ForkError::WrongEdit("a message")),
    }
}

/// Returns the answer that is carried out anew.
fn answer(
    segment: &Segment<'_>,
    at: &RunEvent,
    edit: Option<&Edit>,
) -> Result<common::ForkedAnswer, ForkError> {
    let is_answer = answered(at).is_some();
    let edited = match edit {
        Some(Edit::Answer(text)) if is_answer => Some(text),
        None => None,
        Some(Edit::Output(_) | Edit::Failure(_)) if !is_answer => None,
        Some(_) if is_answer => return Err(ForkError::WrongEdit("an answer")),
        Some(_) => return Err(ForkError::WrongEdit("a result")),
    };
    let number = segment.number;
    if let Some(text) = edited {
        return Ok(common::ForkedAnswer {
            number,
            text: text.clone(),
            finish_reason: "stop".to_owned(),
            ..common::ForkedAnswer::default()
        });
    }
    let original = segment.answered.cloned().unwrap_or_default();
    let calls = segment.events.iter().filter_map(|event| match &event.kind {
        Some(Kind::ToolSelected(selected)) => selected.call.clone(),
        _ => None,
    });
    let is_native = |call: &common::ToolCall| call.dialect() == common::Dialect::Native;
    Ok(common::ForkedAnswer {
        number,
        text: original.text,
        finish_reason: original.finish_reason,
        model: original.model,
        native_calls: calls.filter(is_native).collect(),
        reasoning_json: original.reasoning_json,
    })
}

/// Returns the results of the calls of an answer that left, one of them edited. Calls that only read or change
/// states are made anew, on the copies.
fn results(segment: &Segment<'_>, sequence: u64, edit: Option<&Edit>) -> Vec<common::ResultTaken> {
    let mut taken = Vec::new();
    for (place, sent) in segment.events.iter().enumerate() {
        let Some(Kind::CallDispatched(sent)) = &sent.kind else {
            continue;
        };
        let after = segment.events[place..].iter();
        let settled = after.clone().find_map(|event| match &event.kind {
            Some(Kind::CallSettled(settled)) => {
                let result = settled.result.as_ref()?;
                (result.index == sent.index).then_some((event.sequence, result))
            }
            _ => None,
        });
        let mut observation = after.clone().find_map(|event| match &event.kind {
            Some(Kind::Observation(seen)) if seen.index == Some(sent.index) => {
                Some(seen.text.clone())
            }
            _ => None,
        });
        let (at, mut result) = match settled {
            Some((at, result)) => (at, result.clone()),
            None => (0, in_doubt(sent)),
        };
        let edit = edit.filter(|_| at == sequence);
        match edit {
            Some(Edit::Output(output)) => {
                result = edited(&result, common::CallStatus::Succeeded);
                result.output_json = output.to_string();
            }
            Some(Edit::Failure(message)) => {
                result = edited(&result, common::CallStatus::Failed);
                result.error = Some(common::CallError {
                    category: common::ErrorCategory::Domain.into(),
                    code: "edited".to_owned(),
                    message: message.clone(),
                    ..common::CallError::default()
                });
            }
            _ => {}
        }
        if edit.is_some() {
            observation = None;
        } else if spelling::is_state_tool(&sent.tool_id) {
            continue;
        }
        taken.push(common::ResultTaken {
            tool_id: sent.tool_id.clone(),
            arguments_json: sent.arguments_json.clone(),
            result: Some(result),
            observation: observation.unwrap_or_default(),
        });
    }
    taken
}

fn edited(result: &common::CallResult, status: common::CallStatus) -> common::CallResult {
    common::CallResult {
        index: result.index,
        effect_id: result.effect_id.clone(),
        tool_id: result.tool_id.clone(),
        status: status.into(),
        ..common::CallResult::default()
    }
}

/// Returns the result of a call that left and whose end is not in the log: it is in doubt.
fn in_doubt(sent: &common::CallDispatched) -> common::CallResult {
    common::CallResult {
        index: sent.index,
        effect_id: sent.effect_id.clone(),
        tool_id: sent.tool_id.clone(),
        status: common::CallStatus::InDoubt.into(),
        ..common::CallResult::default()
    }
}

fn is_in_doubt(taken: &common::ResultTaken) -> bool {
    let result = taken.result.as_ref();
    result.is_some_and(|result| result.status() == common::CallStatus::InDoubt)
}

fn effect_of(taken: &common::ResultTaken) -> String {
    let result = taken.result.as_ref();
    result.map_or_else(String::new, |result| result.effect_id.clone())
}

/// Returns the messages from before the turn, as its caller sent them.
fn given(own: &[RunEvent]) -> Vec<Kind> {
    let kinds = own.iter().filter_map(|event| event.kind.as_ref());
    let given = kinds.filter(|kind| matches!(kind, Kind::MessageGiven(_)));
    given.cloned().collect()
}

/// Returns the events that a fork takes over; the first of them gets the sequence `first`.
fn copied(own: &[RunEvent], first: u64) -> Vec<Kind> {
    let mut copied: Vec<Kind> = Vec::new();
    let mut accepted: HashMap<u64, u64> = HashMap::new();
    for event in own {
        let Some(kind) = event.kind.as_ref().filter(|kind| is_taken_over(kind)) else {
            continue;
        };
        match (copied.last_mut(), kind) {
            (Some(Kind::Text(before)), Kind::Text(text)) => {
                before.text.push_str(&text.text);
                continue;
            }
            (Some(Kind::Thinking(before)), Kind::Thinking(thinking)) => {
                before.text.push_str(&thinking.text);
                continue;
            }
            _ => {}
        }
        copied.push(match kind {
            Kind::Steered(steered) => Kind::Steered(common::Steered {
                message: steered.message.clone(),
                accepted_sequence: accepted
                    .get(&steered.accepted_sequence)
                    .copied()
                    .unwrap_or_default(),
            }),
            Kind::SteeringAccepted(_) => {
                accepted.insert(event.sequence, first + copied.len() as u64);
                kind.clone()
            }
            kind => kind.clone(),
        });
    }
    copied
}

/// Whether an event before the fork is taken over, as it is a part of the turn.
fn is_taken_over(kind: &Kind) -> bool {
    matches!(
        kind,
        Kind::MessageGiven(_)
            | Kind::IterationStarted(_)
            | Kind::ModelRequested(_)
            | Kind::Thinking(_)
            | Kind::Text(_)
            | Kind::ModelAnswered(_)
            | Kind::Diagnosed(_)
            | Kind::ToolSelected(_)
            | Kind::CallDispatched(_)
            | Kind::CallSettled(_)
            | Kind::Observation(_)
            | Kind::BudgetReached(_)
            | Kind::SteeringAccepted(_)
            | Kind::Steered(_)
            | Kind::BudgetsEdited(_)
            | Kind::UsageReported(_)
            | Kind::ConversationCompacted(_)
    )
}

/// Replaces the last of the events by another message of the person.
fn steer_otherwise(copied: &mut [Kind], text: &str) {
    let Some((Kind::Steered(steered), before)) = copied.split_last_mut() else {
        return;
    };
    let original = std::mem::replace(&mut steered.message, text.to_owned());
    let accepted = before.iter_mut().rev().find_map(|kind| match kind {
        Kind::SteeringAccepted(accepted) if accepted.message == original => Some(accepted),
        _ => None,
    });
    if let Some(accepted) = accepted {
        accepted.message = text.to_owned();
    }
}
