//! The requests of people to a turn while it ran.

use std::collections::{BTreeMap, VecDeque};

use agent_domain::budgets::Budgets;
use contracts::tavern::common::v1::{RunEvent, run_event::Kind};
use core_types::Principal;

use crate::wire;

/// The number of messages that may wait for the model's next request.
const MOST_MESSAGES: usize = 16;
/// The number of named requests that one turn accepts.
const MOST_REQUESTS: usize = 1_000;

/// A message that waits for the model's next request.
#[derive(Clone, Debug)]
pub struct Message {
    /// The words of the person.
    pub text: String,
    /// The sequence at which it was accepted.
    pub accepted_sequence: u64,
    request_id: String,
}

/// The requests to a turn and their answers, by the names of the requests.
#[derive(Clone, Debug, Default)]
pub struct Steering {
    waiting: VecDeque<Message>,
    /// The sequences at which messages were accepted and, if they are, in force.
    accepted: BTreeMap<String, Answered<(u64, Option<u64>)>>,
    edited: BTreeMap<String, Answered<(u64, Budgets)>>,
}

/// The answer to a named request.
#[derive(Clone, Debug)]
struct Answered<T> {
    /// The principal of the request, as it is recorded.
    principal: String,
    answer: T,
}

/// Another principal used the request id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestIdReused;

impl<T: Copy> Answered<T> {
    /// Returns the answer to a request that a principal repeats; none if it was not seen.
    fn to(
        all: &BTreeMap<String, Self>,
        request_id: &str,
        principal: &Principal,
    ) -> Result<Option<T>, RequestIdReused> {
        match all.get(request_id) {
            Some(_) if request_id.is_empty() => Ok(None),
            Some(seen) if seen.principal != principal.recorded() => Err(RequestIdReused),
            seen => Ok(seen.map(|seen| seen.answer)),
        }
    }
}

impl Steering {
    /// Takes an event, which is recorded if it is one of steering.
    pub(super) fn take(&mut self, event: &RunEvent) {
        let sequence = event.sequence;
        match &event.kind {
            Some(Kind::SteeringAccepted(accepted)) => {
                debug_assert_ne!(sequence, 0, "its sequence is its answer");
                let request_id = accepted.request_id.clone();
                self.waiting.push_back(Message {
                    text: accepted.message.clone(),
                    accepted_sequence: sequence,
                    request_id: request_id.clone(),
                });
                let answered = Answered {
                    principal: accepted.principal.clone(),
                    answer: (sequence, None),
                };
                self.accepted.insert(request_id, answered);
            }
            Some(Kind::Steered(steered)) => {
                debug_assert_ne!(sequence, 0, "its sequence is its answer");
                let is_it =
                    |message: &Message| message.accepted_sequence == steered.accepted_sequence;
                let place = self.waiting.iter().position(is_it);
                let message = place.and_then(|place| self.waiting.remove(place));
                let accepted = message.map(|message| self.accepted.get_mut(&message.request_id));
                if let Some(accepted) = accepted.flatten() {
                    accepted.answer.1 = Some(sequence);
                }
            }
            Some(Kind::BudgetsEdited(edited)) => {
                debug_assert_ne!(sequence, 0, "its sequence is its answer");
                let budgets = wire::edited_budgets(edited);
                let request_id = edited.request_id.clone();
                let answered = Answered {
                    principal: edited.principal.clone(),
                    answer: (sequence, budgets),
                };
                self.edited.insert(request_id, answered);
            }
            _ => {}
        }
    }

    /// Returns the message that the model reads next; none if none waits.
    pub fn next(&self) -> Option<&Message> {
        self.waiting.front()
    }

    /// Whether the turn accepts no more messages now.
    pub fn is_full(&self) -> bool {
        self.waiting.len() >= MOST_MESSAGES || self.accepted.len() >= MOST_REQUESTS
    }

    /// Returns the sequence at which the message of a named request was accepted and, if it is, that from
    /// which on it is in force; none if it was not.
    ///
    /// # Errors
    /// Another principal used the request id.
    pub fn accepted(
        &self,
        request_id: &str,
        principal: &Principal,
    ) -> Result<Option<(u64, Option<u64>)>, RequestIdReused> {
        Answered::to(&self.accepted, request_id, principal)
    }

    /// Returns the sequence from which on the budgets of a named request are in force, and those; none if it
    /// was not seen.
    ///
    /// # Errors
    /// Another principal used the request id.
    pub fn edited(
        &self,
        request_id: &str,
        principal: &Principal,
    ) -> Result<Option<(u64, Budgets)>, RequestIdReused> {
        Answered::to(&self.edited, request_id, principal)
    }
}
