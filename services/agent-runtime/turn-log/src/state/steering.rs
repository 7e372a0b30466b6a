//! The requests of people to a turn while it ran.

use std::collections::{BTreeMap, VecDeque};

use agent_domain::budgets::Budgets;
use contracts::tavern::common::v1::{RunEvent, run_event::Kind};

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
    accepted: BTreeMap<String, (u64, Option<u64>)>,
    edited: BTreeMap<String, (u64, Budgets)>,
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
                self.accepted.insert(request_id, (sequence, None));
            }
            Some(Kind::Steered(steered)) => {
                debug_assert_ne!(sequence, 0, "its sequence is its answer");
                let is_it =
                    |message: &Message| message.accepted_sequence == steered.accepted_sequence;
                let place = self.waiting.iter().position(is_it);
                let message = place.and_then(|place| self.waiting.remove(place));
                let accepted = message.map(|message| self.accepted.get_mut(&message.request_id));
                if let Some((_, in_force)) = accepted.flatten() {
                    *in_force = Some(sequence);
                }
            }
            Some(Kind::BudgetsEdited(edited)) => {
                debug_assert_ne!(sequence, 0, "its sequence is its answer");
                let budgets = wire::edited_budgets(edited);
                let request_id = edited.request_id.clone();
                self.edited.insert(request_id, (sequence, budgets));
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
    pub fn accepted(&self, request_id: &str) -> Option<(u64, Option<u64>)> {
        let seen = self.accepted.get(request_id).copied();
        seen.filter(|_| !request_id.is_empty())
    }

    /// Returns the sequence from which on the budgets of a named request are in force, and those; none if it
    /// was not seen.
    pub fn edited(&self, request_id: &str) -> Option<(u64, Budgets)> {
        let seen = self.edited.get(request_id).copied();
        seen.filter(|_| !request_id.is_empty())
    }
}
