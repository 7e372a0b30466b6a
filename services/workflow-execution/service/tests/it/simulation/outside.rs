//! The world that outlives a process: the time, the logs of the runs, tools, and the ledger of the
//! registry.

use std::collections::{BTreeMap, HashMap};

use contracts::tavern::common::v1::run_event::Kind;
use contracts::tavern::common::v1::{RunEvent, RunOutcome, RunStarted};
use core_types::Timestamp;
use fastrand::Rng;
use workflow_domain::plan::NodeIndex;

use super::children::{Registry, Step};

/// An event at a time.
#[derive(Clone, Debug)]
pub(super) enum Happening {
    /// A node of a run continues.
    Continue {
        /// The number of the process; a killed process does not notice.
        process: u32,
        /// The node.
        node: NodeOfRun,
        /// The cause.
        how: Continue,
    },
    /// A step of a call of a workflow at the registry, which is in the same process.
    Call {
        process: u32,
        effect_id: String,
        step: Step,
    },
    /// A signal arrives at a run.
    Signal { run_id: String, name: String },
    /// A caller cancels a run that is open, mostly the one at the top.
    Cancel,
    /// The time is over in which the calls of a cancelled run have to end.
    GraceOver { process: u32, run_id: String },
    /// A run is paused, with those below it.
    Pause,
    /// Runs that were paused continue.
    Resume { run_ids: Vec<String> },
    /// The process is killed, and another recovers the runs.
    Kill,
    /// The registry alone is killed, and forgets the calls in flight.
    KillRegistry,
}

/// A node of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NodeOfRun {
    pub(super) run_id: String,
    pub(super) place: EditTarget,
    pub(super) node: NodeIndex,
}

/// The zones around a node, the outermost first, and the iteration of each.
pub(super) type EditTarget = Vec<(NodeIndex, u64)>;

/// The cause for which a node continues.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Continue {
    /// Its tool has ended.
    ToolEnded,
    /// Its tool has followed a cancel.
    ToolCancelled,
    /// Its effect has its permits.
    Admitted,
    /// Its wait is due.
    Due,
    /// The short pause before its next attempt is over.
    PauseOver,
}

pub(super) struct Outside {
    pub(super) random: Rng,
    /// Milliseconds since the beginning.
    pub(super) now: u64,
    pub(super) registry: Registry,
    logs: BTreeMap<String, Log>,
    /// The run whose log takes new events.
    present: String,
    schedule: BTreeMap<(u64, u64), Happening>,
    scheduled: u64,
    /// The end of the tool that carries out an attempt of a call, by effect id and attempt.
    tools: HashMap<(String, u32), u64>,
}

/// The log of a run.
#[derive(Default)]
struct Log {
    /// The runs above, outermost first.
    path: Vec<String>,
    events: Vec<RunEvent>,
    /// The number of events that survive a kill.
    durable: usize,
}

impl Outside {
    pub(super) fn new(random: Rng) -> Self {
        Self {
            random,
            now: 0,
            registry: Registry::default(),
            logs: BTreeMap::new(),
            present: String::new(),
            schedule: BTreeMap::new(),
            scheduled: 0,
            tools: HashMap::new(),
        }
    }

    /// Returns the time.
    pub(super) fn now(&self) -> Timestamp {
        Timestamp::from_unix_nanos(i64::try_from(self.now).unwrap() * 1_000_000)
    }

    pub(super) fn schedule(&mut self, at: u64, happening: Happening) {
        self.scheduled += 1;
        self.schedule.insert((at, self.scheduled), happening);
    }

    /// Advances the time to the next event.
    pub(super) fn next(&mut self) -> Option<Happening> {
        let ((at, _), happening) = self.schedule.pop_first()?;
        self.now = self.now.max(at);
        Some(happening)
    }

    /// Forgets the messages from and to the registry that are under way.
    pub(super) fn lose_calls(&mut self) {
        let is_call = |happening: &Happening| matches!(happening, Happening::Call { .. });
        self.schedule.retain(|_, happening| !is_call(happening));
        self.registry.end_process();
    }

    pub(super) fn any_scheduled(&self, matches: impl Fn(&Happening) -> bool) -> bool {
        self.schedule.values().any(matches)
    }

    /// Records the start of a run, durably. `above` are the runs above it, the outermost first.
    pub(super) fn begin_log(&mut self, run_id: &str, above: Vec<String>, started: RunStarted) {
        let log = Log {
            path: above,
            ..Log::default()
        };
        let before = self.logs.insert(run_id.to_owned(), log);
        assert!(before.is_none(), "{run_id} is started twice");
        let present = std::mem::replace(&mut self.present, run_id.to_owned());
        self.submit(Kind::RunStarted(started));
        self.commit();
        self.present = present;
    }

    /// Turns to a run, whose log takes the events that are recorded from now on.
    pub(super) fn turn_to(&mut self, run_id: &str) {
        run_id.clone_into(&mut self.present);
    }

    pub(super) fn submit(&mut self, kind: Kind) {
        let event = RunEvent {
            run_id: self.present.clone(),
            parent_path: self.log().path.clone(),
            time: Some(time(self.now)),
            kind: Some(kind),
            ..RunEvent::default()
        };
        self.submit_event(event);
    }

    pub(super) fn submit_all(&mut self, kinds: impl IntoIterator<Item = Kind>) {
        for kind in kinds {
            self.submit(kind);
        }
    }

    /// Records an event of this run or of one below it.
    pub(super) fn submit_event(&mut self, event: RunEvent) {
        let events = &mut self.log_mut().events;
        let sequence = events.len() as u64 + 1;
        events.push(RunEvent { sequence, ..event });
    }

    pub(super) fn commit(&mut self) {
        let log = self.log_mut();
        log.durable = log.events.len();
    }

    /// Loses events that no commit covers; each log keeps a prefix of them.
    pub(super) fn lose_uncommitted(&mut self) {
        for log in self.logs.values_mut() {
            let kept = self.random.usize(log.durable..=log.events.len());
            log.events.truncate(kept);
            log.durable = kept;
        }
    }

    /// Returns the events of the present run, without the runs below.
    pub(super) fn kinds(&self) -> impl Iterator<Item = &Kind> {
        let own = self.log().events.iter();
        let own = own.filter(|event| event.run_id == self.present);
        own.filter_map(|event| event.kind.as_ref())
    }

    /// Returns when the present attempt of a node may begin, in milliseconds, from its last failure.
    pub(super) fn retry_due(&self, node_id: &str) -> u64 {
        let retrying = self.log().events.iter().rev().find_map(|event| {
            let Some(Kind::NodeRetrying(retrying)) = &event.kind else {
                return None;
            };
            (event.run_id == self.present && retrying.node_id == node_id)
                .then_some((event.time?, retrying.pause?))
        });
        retrying.map_or(0, |(time, pause)| {
            let seconds = u64::try_from(time.seconds + pause.seconds).unwrap();
            seconds * 1000 + u64::try_from(time.nanos + pause.nanos).unwrap() / 1_000_000
        })
    }

    /// Whether a run is paused, as its log says.
    pub(super) fn is_paused(&self, run_id: &str) -> bool {
        let own = self.events_of(run_id).iter().rev();
        let mut own = own.filter(|event| event.run_id == run_id);
        let last = own.find_map(|event| match event.kind {
            Some(Kind::RunPaused(_)) => Some(true),
            Some(Kind::RunResumed(_)) => Some(false),
            _ => None,
        });
        last.unwrap_or_default()
    }

    /// Returns the events that a follower of a run sees: the durable ones.
    pub(super) fn events_of(&self, run_id: &str) -> &[RunEvent] {
        let log = &self.logs[run_id];
        &log.events[..log.durable]
    }

    /// Returns the outcome of a run, if it has ended.
    pub(super) fn outcome_of(&self, run_id: &str) -> Option<&RunOutcome> {
        let last = self.events_of(run_id).last();
        match &last.filter(|event| event.run_id == run_id)?.kind {
            Some(Kind::RunFinished(finished)) => finished.outcome.as_ref(),
            _ => None,
        }
    }

    /// Returns the runs above a run, the outermost first.
    pub(super) fn above(&self, run_id: &str) -> &[String] {
        &self.logs[run_id].path
    }

    pub(super) fn run_ids(&self) -> Vec<String> {
        self.logs.keys().cloned().collect()
    }

    pub(super) fn into_logs(self) -> BTreeMap<String, Vec<RunEvent>> {
        let logs = self.logs.into_iter();
        logs.map(|(run_id, log)| (run_id, log.events)).collect()
    }

    /// Starts a tool, or joins the one that has the same effect id and attempt; returns the time of
    /// its end.
    pub(super) fn call_tool(&mut self, effect_id: &str, attempt: u32) -> u64 {
        let ends = self.now + self.random.u64(0..20_000);
        let key = (effect_id.to_owned(), attempt);
        *self.tools.entry(key).or_insert(ends)
    }

    /// Returns the largest attempt of a call that a tool was started for.
    pub(super) fn last_attempt(&self, effect_id: &str) -> u32 {
        let attempts = self.tools.keys().filter(|(id, _)| id == effect_id);
        attempts.map(|(_, attempt)| *attempt).max().unwrap_or(0)
    }

    fn log(&self) -> &Log {
        &self.logs[&self.present]
    }

    fn log_mut(&mut self) -> &mut Log {
        self.logs.get_mut(&self.present).unwrap()
    }
}

/// Returns the time `millis` milliseconds after the beginning.
pub(super) fn time(millis: u64) -> prost_types::Timestamp {
    prost_types::Timestamp {
        seconds: i64::try_from(millis / 1000).unwrap(),
        nanos: i32::try_from(millis % 1000).unwrap() * 1_000_000,
    }
}
