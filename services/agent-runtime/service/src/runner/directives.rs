//! What people ask of a turn while it runs: messages for its model, and other budgets (rules G704 and
//! G810).

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use agent_domain::budgets::{Budgets, Limits};
use contracts::tavern::common::v1::{self as common, run_event::Kind};
use tokio::sync::{mpsc, oneshot};
use turn_log::wire;

/// How many directives may wait to be taken by one turn.
const WAITING: usize = 16;
/// How many messages may wait for the model's next request.
const MOST_MESSAGES: usize = 16;
/// How many named requests one turn accepts.
const MOST_REQUESTS: usize = 1_000;

/// Something that a person asks of a turn.
#[derive(Debug)]
pub(crate) enum Directive {
    /// The model shall read a message.
    Steer {
        /// The name of the request; may be empty.
        request_id: String,
        /// The message.
        message: String,
        /// Whether the request that is under way is dropped.
        interrupt: bool,
        /// Where the sequence goes by which it was accepted; none if too many wait.
        accepted: oneshot::Sender<Option<u64>>,
        /// Where the sequence goes from which on it is in force.
        in_force: oneshot::Sender<u64>,
    },
    /// The budgets shall be others.
    Edit {
        /// The name of the request; may be empty.
        request_id: String,
        /// The limits to change.
        limits: Limits,
        /// Where the sequence and the budgets go from which on they are in force.
        in_force: oneshot::Sender<(u64, Budgets)>,
    },
}

/// The turns that can be given directives, by run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Switchboard {
    turns: Arc<Mutex<HashMap<String, mpsc::Sender<Directive>>>>,
}

impl Switchboard {
    /// Returns where the directives for a turn go; none if it does not run here.
    pub(crate) fn to(&self, run_id: &str) -> Option<mpsc::Sender<Directive>> {
        self.lock().get(run_id).cloned()
    }

    /// Begins to take directives for a turn.
    pub(super) fn connect(&self, run_id: String) -> TurnInbox {
        let (sender, receiver) = mpsc::channel(WAITING);
        self.lock().insert(run_id.clone(), sender);
        TurnInbox {
            receiver,
            run_id,
            switchboard: self.clone(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, mpsc::Sender<Directive>>> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The directives for one turn; it takes none after it is dropped.
#[derive(Debug)]
pub(super) struct TurnInbox {
    receiver: mpsc::Receiver<Directive>,
    run_id: String,
    switchboard: Switchboard,
}

impl TurnInbox {
    /// Returns a directive that is there.
    pub(super) fn waiting(&mut self) -> Option<Directive> {
        self.receiver.try_recv().ok()
    }

    /// Returns the next directive.
    pub(super) async fn next(&mut self) -> Directive {
        match self.receiver.recv().await {
            Some(directive) => directive,
            // The switchboard holds a sender as long as this is there.
            None => std::future::pending().await,
        }
    }
}

impl Drop for TurnInbox {
    fn drop(&mut self) {
        self.switchboard.lock().remove(&self.run_id);
    }
}

/// A message that waits for the model's next request.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) text: String,
    request_id: String,
    pub(super) accepted_sequence: u64,
    pub(super) in_force: Option<oneshot::Sender<u64>>,
}

/// What a turn was asked and what it answered, by the names of the requests.
#[derive(Debug, Default)]
pub(super) struct Steering {
    pub(super) waiting: VecDeque<Message>,
    /// The sequences at which messages were accepted and, if they are, in force.
    pub(super) accepted: HashMap<String, (u64, Option<u64>)>,
    pub(super) edited: HashMap<String, (u64, Budgets)>,
}

impl Steering {
    /// Takes an event of the log that is replayed.
    pub(super) fn replay(&mut self, event: &common::RunEvent) {
        match &event.kind {
            Some(Kind::SteeringAccepted(accepted)) => {
                self.accept(&accepted.request_id, &accepted.message, event.sequence);
            }
            Some(Kind::Steered(steered)) => {
                let is_it =
                    |message: &Message| message.accepted_sequence == steered.accepted_sequence;
                if let Some(place) = self.waiting.iter().position(is_it) {
                    self.take(place, event.sequence);
                }
            }
            Some(Kind::BudgetsEdited(edited)) => {
                let budgets = wire::edited_budgets(edited);
                let request_id = edited.request_id.clone();
                self.edited.insert(request_id, (event.sequence, budgets));
            }
            _ => {}
        }
    }

    /// Whether the model has a message to read.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(super) fn accept(&mut self, request_id: &str, text: &str, sequence: u64) {
        self.waiting.push_back(Message {
            text: text.to_owned(),
            request_id: request_id.to_owned(),
            accepted_sequence: sequence,
            in_force: None,
        });
        self.accepted
            .insert(request_id.to_owned(), (sequence, None));
    }

    pub(super) fn take(&mut self, place: usize, sequence: u64) {
        let Some(message) = self.waiting.remove(place) else {
            return;
        };
        if let Some((_, in_force)) = self.accepted.get_mut(&message.request_id) {
            *in_force = Some(sequence);
        }
        if let Some(in_force) = message.in_force {
            let _ = in_force.send(sequence);
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() >= MOST_MESSAGES || self.accepted.len() >= MOST_REQUESTS
    }

    /// Answers a request that was seen before.
    pub(super) fn answer_again(
        &mut self,
        (accepted, in_force): (u64, Option<u64>),
        answer: oneshot::Sender<u64>,
    ) {
        let is_it = |message: &&mut Message| message.accepted_sequence == accepted;
        match (in_force, self.waiting.iter_mut().find(is_it)) {
            (Some(sequence), _) => drop(answer.send(sequence)),
            (None, Some(message)) => message.in_force = Some(answer),
            (None, None) => {}
        }
    }
}
