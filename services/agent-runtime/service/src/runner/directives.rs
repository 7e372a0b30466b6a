//! The directives of people to a running turn: messages for its model, and other budgets (rules
//! G704 and G810).

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use agent_domain::budgets::{Budgets, Limits};
use core_types::Principal;
use tokio::sync::{mpsc, oneshot};

/// The most directives that wait for one turn.
const WAITING: usize = 16;

/// A request of a person to a turn.
#[derive(Debug)]
pub(crate) enum Directive {
    /// The model shall read a message.
    Steer {
        /// The principal that requests it.
        principal: Principal,
        /// The name of the request; may be empty.
        request_id: String,
        /// The message.
        message: String,
        /// Whether the request in flight is dropped.
        interrupt: bool,
        /// The channel for the sequence of its acceptance.
        accepted: oneshot::Sender<Result<u64, Refusal>>,
        /// The channel for the sequence from which on it is in force.
        in_force: oneshot::Sender<u64>,
    },
    /// The budgets shall be changed.
    Edit {
        /// The principal that requests it.
        principal: Principal,
        /// The name of the request; may be empty.
        request_id: String,
        /// The limits to change.
        limits: Limits,
        /// The channel for the sequence from which on the budgets are in force, and the budgets.
        in_force: oneshot::Sender<Result<(u64, Budgets), Refusal>>,
    },
}

/// The reason for which a directive is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Too many messages wait.
    Full,
    /// Another principal used the request id.
    RequestIdReused,
}

/// The turns that accept directives, by run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Switchboard {
    turns: Arc<Mutex<HashMap<String, mpsc::Sender<Directive>>>>,
}

impl Switchboard {
    /// Returns the sender of directives to a turn; none if it does not run here.
    pub(crate) fn to(&self, run_id: &str) -> Option<mpsc::Sender<Directive>> {
        self.lock().get(run_id).cloned()
    }

    /// Begins to accept directives for a turn.
    pub(super) fn connect(&self, run_id: String) -> TurnInbox {
        let (sender, receiver) = mpsc::channel(WAITING);
        self.lock().insert(run_id.clone(), sender);
        TurnInbox {
            receiver,
            promised: HashMap::new(),
            run_id,
            switchboard: self.clone(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, mpsc::Sender<Directive>>> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The directives for one turn; after it is dropped, sending fails.
#[derive(Debug)]
pub(super) struct TurnInbox {
    receiver: mpsc::Receiver<Directive>,
    /// The callers that wait until a message is in force, by the sequence at which it was accepted.
    promised: HashMap<u64, oneshot::Sender<u64>>,
    run_id: String,
    switchboard: Switchboard,
}

impl TurnInbox {
    /// Returns a waiting directive.
    pub(super) fn waiting(&mut self) -> Option<Directive> {
        self.receiver.try_recv().ok()
    }

    /// Returns the next directive.
    pub(super) async fn next(&mut self) -> Directive {
        match self.receiver.recv().await {
            Some(directive) => directive,
            // The switchboard holds a sender as long as this inbox exists.
            None => std::future::pending().await,
        }
    }

    /// Remembers the caller that waits until an accepted message is in force, in the place of an earlier one.
    pub(super) fn promise(&mut self, accepted: u64, in_force: oneshot::Sender<u64>) {
        self.promised.insert(accepted, in_force);
    }

    /// Answers the caller that waits for a message, if there is one.
    pub(super) fn keep(&mut self, accepted: u64, in_force: u64) {
        if let Some(caller) = self.promised.remove(&accepted) {
            let _ = caller.send(in_force);
        }
    }
}

impl Drop for TurnInbox {
    fn drop(&mut self) {
        self.switchboard.lock().remove(&self.run_id);
    }
}
