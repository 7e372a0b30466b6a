//! The state of the waits of a run, as it results from the events.

use std::collections::{BTreeMap, HashMap, VecDeque};

use contracts::tavern::common::v1::run_event::Kind;
use contracts::tavern::common::v1::{self as common, WaitKind, WakeCause};
use core_types::Timestamp;
use run_log::Hash;
use tokio::sync::oneshot;

/// The wake-up of a wait.
#[derive(Clone, Debug, PartialEq)]
pub struct Woken {
    /// Its cause.
    pub cause: WakeCause,
    /// The payload of the signal, or the answer, as JSON; empty if its time came.
    pub payload_json: String,
    /// The person who answered; empty for any other cause.
    pub answered_by: String,
    /// The time at which the wait was due.
    pub due: Option<prost_types::Timestamp>,
}

/// The waits of a run that were recorded, and the signals that none of them has consumed.
#[derive(Debug, Default)]
pub struct RecordedWaits {
    /// The waits that were not woken yet, in the order in which they began.
    open: BTreeMap<Key, OpenWait>,
    /// The wake-ups that have not reached their nodes, by the id of the wait.
    woken: HashMap<String, (String, Woken)>,
    /// Signals that no wait has consumed, the oldest first.
    signals: VecDeque<common::SignalReceived>,
    signal_bytes: usize,
    /// The digest of the signal or answer of each id.
    seen: HashMap<String, Hash>,
    received: usize,
    /// Whether the run is about to end, so that a signal would come too late.
    closed: bool,
}

/// The start time of a wait, and its id.
pub(crate) type Key = (Timestamp, String);

#[derive(Debug)]
struct OpenWait {
    wait: common::Wait,
    due: Option<Timestamp>,
    /// Wakes the node; none until it continues after a restart.
    wake: Option<oneshot::Sender<Woken>>,
}

impl RecordedWaits {
    /// Reads the events of a run. Events of runs below are passed over.
    pub fn of(run_id: &str, events: &[common::RunEvent]) -> Self {
        let mut recorded = Self::default();
        for event in events.iter().filter(|event| event.run_id == run_id) {
            if let Some(kind) = &event.kind {
                recorded.take(kind);
            }
        }
        recorded
    }

    fn take(&mut self, kind: &Kind) {
        match kind {
            Kind::NodeWaiting(common::NodeWaiting { wait: Some(wait) }) => {
                let (begun, due) = (time(wait.create_time), wait.due.map(|due| time(Some(due))));
                self.open(wait.clone(), begun, due, None);
            }
            Kind::NodeWoken(woken) => {
                if woken.cause() == WakeCause::Answer {
                    let digest = digest(&woken.principal, &woken.wait_id, &woken.payload_json);
                    self.see(&answer_key(&woken.request_id), digest);
                }
                self.wake(woken);
            }
            Kind::SignalReceived(signal) => self.receive(signal.clone()),
            Kind::NodeFinished(finished) => self.forget(&finished.node_id),
            Kind::NodeRetrying(retrying) => self.forget(&retrying.node_id),
            Kind::IterationFinished(finished) => {
                self.forget(&format!("{}#{}", finished.node_id, finished.index));
            }
            _ => {}
        }
    }

    /// Adds a wait.
    pub(super) fn open(
        &mut self,
        wait: common::Wait,
        begun: Timestamp,
        due: Option<Timestamp>,
        wake: Option<oneshot::Sender<Woken>>,
    ) {
        let key = (begun, wait.wait_id.clone());
        self.open.insert(key, OpenWait { wait, due, wake });
    }

    /// Connects a recorded wait with its node again and returns its start time, if it is open, and
    /// the time at which it is due. Returns the sender if there is no such wait.
    pub(super) fn attach(
        &mut self,
        wait_id: &str,
        wake: oneshot::Sender<Woken>,
    ) -> Result<(Option<Timestamp>, Option<Timestamp>), oneshot::Sender<Woken>> {
        if let Some((_, woken)) = self.woken.remove(wait_id) {
            // It fails if the node waits no longer.
            let _ = wake.send(woken);
            return Ok((None, None));
        }
        let mut open = self.open.iter_mut();
        match open.find(|((_, id), _)| id == wait_id) {
            Some(((begun, _), open)) => {
                open.wake = Some(wake);
                Ok((Some(*begun), open.due))
            }
            None => Err(wake),
        }
    }

    /// Forgets the waits whose nodes wait no longer, because their zone has ended.
    pub(super) fn forget_dropped(&mut self) {
        self.open.retain(|_, open| {
            open.wake
                .as_ref()
                .is_none_or(|wake| !oneshot::Sender::is_closed(wake))
        });
    }

    /// Returns the earliest time at which an open wait is due, if no wait but `awaited` open ones is left:
    /// every wake-up has reached its node, and a node awaits each recorded wait.
    pub(super) fn earliest_of(&mut self, awaited: usize) -> Option<Option<Timestamp>> {
        self.forget_dropped();
        let settled = self.woken.is_empty() && self.open.len() == awaited;
        settled.then(|| self.open.values().filter_map(|open| open.due).min())
    }

    /// Returns the open waits for people.
    pub(super) fn asked(&self) -> Vec<common::Wait> {
        asked(self.list().map(|(_, wait)| wait))
    }

    /// Returns the open waits with their start times, in that order.
    pub(crate) fn list(&self) -> impl Iterator<Item = (&Key, &common::Wait)> {
        self.open.iter().map(|(key, open)| (key, &open.wait))
    }

    /// Returns a wait that was not woken yet.
    pub(super) fn find(&self, wait_id: &str) -> Option<&common::Wait> {
        let mut waits = self.open.values().map(|open| &open.wait);
        waits.find(|wait| wait.wait_id == wait_id)
    }

    /// Returns the oldest wait for a signal.
    pub(super) fn oldest_for(&self, name: &str) -> Option<&common::Wait> {
        let mut waits = self.open.values().map(|open| &open.wait);
        waits.find(|wait| wait.kind() == WaitKind::Signal && wait.name == name)
    }

    /// Returns the oldest signal of a name.
    pub(super) fn first_signal(&self, name: &str) -> Option<&common::SignalReceived> {
        self.signals.iter().find(|signal| signal.name == name)
    }

    /// Returns the number of signals that no wait has consumed, and the size of their payloads.
    pub(super) fn kept_signals(&self) -> (usize, usize) {
        (self.signals.len(), self.signal_bytes)
    }

    /// Refuses further signals; returns the number of signals that no wait has consumed, by name.
    pub(super) fn close(&mut self) -> BTreeMap<&str, u32> {
        self.closed = true;
        let mut unconsumed = BTreeMap::new();
        for signal in &self.signals {
            *unconsumed.entry(signal.name.as_str()).or_default() += 1;
        }
        unconsumed
    }

    /// Whether the run is about to end.
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Returns the number of signals since the run began.
    pub(super) fn received(&self) -> usize {
        self.received
    }

    /// Adds a signal.
    pub(super) fn receive(&mut self, signal: common::SignalReceived) {
        let digest = digest(&signal.principal, &signal.name, &signal.payload_json);
        self.see(&signal_key(&signal.signal_id), digest);
        self.received += 1;
        self.signal_bytes += signal.payload_json.len();
        self.signals.push_back(signal);
    }

    /// Wakes a wait, which consumes its signal.
    pub(super) fn wake(&mut self, woken: &common::NodeWoken) {
        let found = self.open.keys().find(|(_, id)| *id == woken.wait_id);
        let Some(open) = found.cloned().and_then(|key| self.open.remove(&key)) else {
            return;
        };
        if woken.cause() == WakeCause::Signal {
            let name = open.wait.name.as_str();
            let first = self.signals.iter().position(|signal| signal.name == name);
            if let Some(signal) = first.and_then(|at| self.signals.remove(at)) {
                self.signal_bytes -= signal.payload_json.len();
            }
        }
        let for_node = Woken {
            cause: woken.cause(),
            payload_json: woken.payload_json.clone(),
            answered_by: woken.answered_by.clone(),
            due: open.wait.due,
        };
        match open.wake {
            // It fails if the node waits no longer.
            Some(wake) => drop(wake.send(for_node)),
            None => {
                let entry = (open.wait.node_id, for_node);
                self.woken.insert(open.wait.wait_id, entry);
            }
        }
    }

    /// Notes the digest of a signal or an answer that has an id.
    pub(super) fn see(&mut self, key: &Option<String>, digest: Hash) {
        if let Some(key) = key {
            self.seen.insert(key.clone(), digest);
        }
    }

    /// Returns whether an id was used for the same signal or answer; none if it was not used.
    pub(super) fn seen(&self, key: &Option<String>, digest: Hash) -> Option<bool> {
        let seen = self.seen.get(key.as_ref()?)?;
        Some(*seen == digest)
    }

    /// Forgets the waits of a node and of the nodes that it repeats.
    fn forget(&mut self, node_id: &str) {
        let concerns = |of: &str| {
            let rest = of.strip_prefix(node_id);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['#', '/']))
        };
        self.open.retain(|_, open| !concerns(&open.wait.node_id));
        self.woken.retain(|_, (node_id, _)| !concerns(node_id));
    }
}

/// Makes the event of a wait that a signal wakes.
pub(super) fn woken_by_signal(
    wait: &common::Wait,
    signal: &common::SignalReceived,
) -> common::NodeWoken {
    common::NodeWoken {
        wait_id: wait.wait_id.clone(),
        node_id: wait.node_id.clone(),
        cause: WakeCause::Signal.into(),
        payload_json: signal.payload_json.clone(),
        request_id: signal.signal_id.clone(),
        ..common::NodeWoken::default()
    }
}

/// Returns the digest of a principal's signal or answer.
pub(super) fn digest(principal: &str, name: &str, payload_json: &str) -> Hash {
    Hash::of(format!("{principal}\0{name}\0{payload_json}").as_bytes())
}

/// Returns the key under which the id of a signal is noted; none for an empty id.
pub(super) fn signal_key(signal_id: &str) -> Option<String> {
    (!signal_id.is_empty()).then(|| format!("signal {signal_id}"))
}

/// Returns the key under which the request id of an answer is noted; none for an empty id.
pub(super) fn answer_key(request_id: &str) -> Option<String> {
    (!request_id.is_empty()).then(|| format!("answer {request_id}"))
}

fn time(time: Option<prost_types::Timestamp>) -> Timestamp {
    let known = time.and_then(grpc_kit::run_list::timestamp_from_proto);
    known.unwrap_or_default()
}

/// The most questions of one run.
const MAX_QUESTIONS: usize = 100;

/// Returns the waits for a person.
pub(crate) fn asked<'a>(waits: impl Iterator<Item = &'a common::Wait>) -> Vec<common::Wait> {
    let people = waits.filter(|wait| wait.kind() == WaitKind::HumanInput);
    people.take(MAX_QUESTIONS).cloned().collect()
}
