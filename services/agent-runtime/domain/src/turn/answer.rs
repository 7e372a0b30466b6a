//! One answer of the model while its calls are carried out.

use call_outcome::repetition::Repetition;
use call_text::native::{EndedCall, NativeCall};
use core_types::Timestamp;

use super::{CallStatus, Command, ReadCall};
use crate::budgets::Budget;
use crate::message::{ChatMessage, Role, TurnMessage};

/// The state of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallState {
    /// It was read.
    Read,
    /// It has left for its tool.
    Dispatched {
        /// Its effect.
        effect_id: String,
    },
    /// It has ended.
    Settled {
        /// The status.
        status: CallStatus,
        /// Its effect; none if it never left.
        effect_id: Option<String>,
    },
}

/// A call and its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The call.
    pub call: ReadCall,
    /// Its state.
    pub state: CallState,
}

impl Progress {
    /// Returns the effect if the call has left and its end is not known.
    pub(crate) fn unsettled_effect(&self) -> Option<&str> {
        match &self.state {
            CallState::Dispatched { effect_id } => Some(effect_id),
            CallState::Settled {
                status: CallStatus::InDoubt,
                effect_id,
            } => effect_id.as_deref(),
            _ => None,
        }
    }

    fn is_settled(&self) -> bool {
        matches!(self.state, CallState::Settled { .. })
    }

    fn is_under_way(&self) -> bool {
        matches!(self.state, CallState::Dispatched { .. })
    }
}

/// The most calls of one answer in flight together.
pub const MAX_AT_ONCE: usize = 8;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Observed {
    index: Option<u32>,
    text: String,
    time: Timestamp,
}

/// An answer, its calls and the observations about them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    last: Option<Budget>,
    calls: Vec<Progress>,
    observations: Vec<Observed>,
    /// The messages from people after the calls.
    steering: Vec<TurnMessage>,
}

impl Answer {
    pub(super) fn new(last: Option<Budget>) -> Self {
        Self {
            last,
            calls: Vec::new(),
            observations: Vec::new(),
            steering: Vec::new(),
        }
    }

    pub(super) fn last(&self) -> Option<Budget> {
        self.last
    }

    pub(super) fn calls(&self) -> &[Progress] {
        &self.calls
    }

    /// Calls are numbered in the order in which they are read. Some may have left while the model
    /// was still writing the others.
    pub(super) fn can_take(&self, call: &ReadCall) -> bool {
        usize::try_from(call.index) == Ok(self.calls.len())
    }

    pub(super) fn take(&mut self, call: ReadCall) {
        self.calls.push(Progress {
            call,
            state: CallState::Read,
        });
    }

    /// Marks a call as on its way; false if it may not leave now.
    pub(super) fn dispatch(&mut self, index: u32, effect_id: String) -> bool {
        match self.next() {
            Some(Command::Dispatch(call)) if call.index == index => {}
            _ => return false,
        }
        match self.find(index) {
            Some(progress) => {
                progress.state = CallState::Dispatched { effect_id };
                true
            }
            None => false,
        }
    }

    /// Marks a call as ended; false if no call could have ended so.
    pub(super) fn settle(&mut self, index: u32, status: CallStatus) -> bool {
        let Some(progress) = self.find(index) else {
            return false;
        };
        let effect_id = match &progress.state {
            CallState::Read if !matches!(status, CallStatus::Succeeded | CallStatus::InDoubt) => {
                None
            }
            CallState::Dispatched { effect_id } => Some(effect_id.clone()),
            _ => return false,
        };
        progress.state = CallState::Settled { status, effect_id };
        true
    }

    pub(super) fn observe(&mut self, index: Option<u32>, text: String, time: Timestamp) {
        self.observations.push(Observed { index, text, time });
    }

    pub(super) fn is_settled(&self) -> bool {
        self.calls.iter().all(Progress::is_settled)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Returns the places of the calls that have left and not ended.
    pub(super) fn under_way(&self) -> Vec<u32> {
        let under_way = self.calls.iter().filter(|progress| progress.is_under_way());
        under_way.map(|progress| progress.call.index).collect()
    }

    pub(super) fn steer(&mut self, text: String, time: Timestamp) {
        self.steering
            .push(ChatMessage::new(Role::User, text).at(time));
    }

    /// Whether there is an observation or a message for the model.
    pub(super) fn is_answered(&self) -> bool {
        !self.observations.is_empty() || !self.steering.is_empty()
    }

    /// Returns the effects that are in doubt.
    pub(super) fn unknown(&self) -> Vec<String> {
        self.calls
            .iter()
            .filter_map(Progress::unsettled_effect)
            .map(str::to_owned)
            .collect()
    }

    /// Returns the next action on the calls; none when all have ended, when one is in doubt, and in
    /// the last answer of a turn.
    ///
    /// The calls of an answer leave in their order, each after the end of its predecessors; only
    /// neighbours that are all `parallel_safe` are in flight together. After a failure the
    /// remaining calls are skipped, unless the failed call has `continue_on_error` (rules A2, T26).
    pub(super) fn next(&self) -> Option<Command> {
        if self.last.is_some() {
            return None;
        }
        let mut failed: Option<&str> = None;
        let mut under_way = 0;
        let mut in_company = true;
        for Progress { call, state } in &self.calls {
            match state {
                CallState::Dispatched { .. } => {
                    under_way += 1;
                    in_company &= call.parallel_safe;
                }
                CallState::Read => {
                    if let Some(tool) = failed {
                        return Some(Command::Skip {
                            call: call.clone(),
                            failed_tool: tool.to_owned(),
                        });
                    }
                    let has_room = in_company && call.parallel_safe && under_way < MAX_AT_ONCE;
                    if under_way == 0 || has_room {
                        return Some(Command::Dispatch(call.clone()));
                    }
                    break;
                }
                CallState::Settled {
                    status: CallStatus::InDoubt,
                    ..
                } => break,
                CallState::Settled {
                    status: CallStatus::Failed,
                    ..
                } if !call.continue_on_error => {
                    failed = failed.or(Some(&call.tool_id));
                }
                CallState::Settled { .. } => {}
            }
        }
        let under_way = self.under_way();
        (!under_way.is_empty()).then_some(Command::Await(under_way))
    }

    /// Adds the calls and their observations.
    pub(super) fn repeat_in(&self, repetition: &mut Repetition) {
        for Progress { call, .. } in &self.calls {
            let of_call = |observed: &&Observed| observed.index == Some(call.index);
            let read = joined(self.observations.iter().filter(of_call));
            repetition.take(&call.tool_id, &call.arguments_json, &read);
        }
    }

    /// Names the failure if the answer held nothing but failures to call.
    pub(super) fn failure(&self) -> Option<String> {
        let calls = self.calls.iter().map(|progress| &progress.call);
        let of_text = self
            .observations
            .iter()
            .filter(|observed| observed.index.is_none());
        name_failure(calls, of_text.map(|observed| observed.text.as_str()))
    }

    /// Adds the messages of this answer to the conversation: its native calls, and the observations
    /// about it. Unless `native` is set, all of it is text.
    pub(super) fn write_messages(&self, native: bool, messages: &mut Vec<TurnMessage>) {
        let calls = self.calls.iter().filter(|progress| progress.call.native);
        let calls: Vec<&Progress> = calls.collect();
        let answer = messages.len();
        let id_of = |call: &ReadCall| format!("call_{answer}_{}", call.index);
        if let Some(TurnMessage { message, .. }) = messages.last_mut().filter(|_| !calls.is_empty())
        {
            let calls = calls.iter().map(|progress| NativeCall {
                id: id_of(&progress.call),
                name: progress.call.tool_id.clone(),
                arguments_json: progress.call.arguments_json.clone(),
            });
            match native {
                true => message.calls.extend(calls),
                false => message.write_out(&calls.collect::<Vec<_>>()),
            }
        }
        self.write_observations(native, &calls, id_of, messages);
        messages.extend(self.steering.iter().cloned());
    }

    fn write_observations(
        &self,
        native: bool,
        calls: &[&Progress],
        id_of: impl Fn(&ReadCall) -> String,
        messages: &mut Vec<TurnMessage>,
    ) {
        let Some(time) = self.observations.last().map(|last| last.time) else {
            return;
        };
        let mut observed: Vec<&Observed> = self.observations.iter().collect();
        observed.sort_by_key(|observed| observed.index.unwrap_or(u32::MAX));
        let mut say = |message: ChatMessage| {
            messages.push(TurnMessage {
                observation: true,
                ..message.at(time)
            })
        };
        if native {
            for Progress { call, state } in calls {
                let of_call = |observed: &&&Observed| observed.index == Some(call.index);
                say(ChatMessage {
                    result_of: Some(EndedCall {
                        id: id_of(call),
                        failed: !matches!(
                            state,
                            CallState::Settled {
                                status: CallStatus::Succeeded,
                                ..
                            }
                        ),
                    }),
                    ..ChatMessage::new(Role::Tool, joined(observed.iter().filter(of_call).copied()))
                });
                observed.retain(|observed| observed.index != Some(call.index));
            }
        }
        if !observed.is_empty() {
            say(ChatMessage::new(Role::User, joined(observed.into_iter())));
        }
    }

    fn find(&mut self, index: u32) -> Option<&mut Progress> {
        self.calls.get_mut(usize::try_from(index).ok()?)
    }
}

/// Names a failure to call, the same for the same mistakes (rule L7); none if a call was good or
/// there was neither a call nor a remark.
pub(crate) fn name_failure<'a>(
    calls: impl IntoIterator<Item = &'a ReadCall>,
    of_text: impl IntoIterator<Item = &'a str>,
) -> Option<String> {
    let mut failure = Vec::new();
    for call in calls {
        if call.problems.is_empty() {
            return None;
        }
        failure.push(format!("{}: {}", call.tool_id, call.problems.join("; ")));
    }
    failure.extend(
        of_text
            .into_iter()
            .map(|text| text.lines().next().unwrap_or_default().to_owned()),
    );
    (!failure.is_empty()).then(|| failure.join("\n"))
}

fn joined<'a>(observed: impl Iterator<Item = &'a Observed>) -> String {
    let texts = observed.map(|observed| observed.text.as_str());
    texts.collect::<Vec<_>>().join("\n")
}
