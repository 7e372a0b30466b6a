//! What outlives a process: the time, the log of the run, and tools.

use std::collections::{BTreeMap, HashMap};

use contracts::tavern::common::v1::RunEvent;
use contracts::tavern::common::v1::run_event::Kind;
use fastrand::Rng;
use workflow_domain::plan::NodeIndex;

/// Something that happens at a time.
#[derive(Clone, Debug)]
pub(super) enum Happening {
    /// A node of a process continues.
    Continue {
        /// The process, by its number; one that was killed does not notice.
        process: u32,
        /// The zones around it, with the iteration of each.
        place: Place,
        node: NodeIndex,
        how: Continue,
    },
    /// A signal arrives.
    Signal(String),
    /// The process is killed and another recovers the run.
    Kill,
}

/// The zones around a node, the outermost first, and the iteration of each.
pub(super) type Place = Vec<(NodeIndex, u64)>;

/// How a node continues.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Continue {
    /// Its tool has ended.
    ToolEnded,
    /// Its wait is due.
    Due,
    /// The pause before its next attempt is over.
    RetryDue,
}

pub(super) struct Outside {
    pub(super) random: Rng,
    /// Milliseconds since the beginning.
    pub(super) now: u64,
    pub(super) log: Vec<RunEvent>,
    /// How many events of the log survive a kill.
    pub(super) durable: usize,
    pub(super) run_id: String,
    schedule: BTreeMap<(u64, u64), Happening>,
    scheduled: u64,
    /// When the tool that carries out an attempt of a call ends, by effect id and attempt.
    tools: HashMap<(String, u32), u64>,
}

impl Outside {
    pub(super) fn new(run_id: &str, random: Rng) -> Self {
        Self {
            random,
            now: 0,
            log: Vec::new(),
            durable: 0,
            run_id: run_id.to_owned(),
            schedule: BTreeMap::new(),
            scheduled: 0,
            tools: HashMap::new(),
        }
    }

    pub(super) fn schedule(&mut self, at: u64, happening: Happening) {
        self.scheduled += 1;
        self.schedule.insert((at, self.scheduled), happening);
    }

    /// Moves the time to what happens next.
    pub(super) fn next(&mut self) -> Option<Happening> {
        let ((at, _), happening) = self.schedule.pop_first()?;
        self.now = self.now.max(at);
        Some(happening)
    }

    pub(super) fn any_scheduled(&self, matches: impl Fn(&Happening) -> bool) -> bool {
        self.schedule.values().any(matches)
    }

    pub(super) fn submit(&mut self, kind: Kind) {
        self.log.push(RunEvent {
            run_id: self.run_id.clone(),
            sequence: self.log.len() as u64 + 1,
            time: Some(time(self.now)),
            kind: Some(kind),
            ..RunEvent::default()
        });
    }

    pub(super) fn commit(&mut self) {
        self.durable = self.log.len();
    }

    /// Loses events that no commit covers; the log keeps a prefix of them.
    pub(super) fn lose_uncommitted(&mut self) {
        let kept = self.random.usize(self.durable..=self.log.len());
        self.log.truncate(kept);
        self.commit();
    }

    pub(super) fn kinds(&self) -> impl Iterator<Item = &Kind> {
        self.log.iter().filter_map(|event| event.kind.as_ref())
    }

    /// Starts a tool, or joins the one that has the same effect id and attempt; returns when it ends.
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
}

/// Returns the time so many milliseconds after the beginning.
pub(super) fn time(millis: u64) -> prost_types::Timestamp {
    prost_types::Timestamp {
        seconds: i64::try_from(millis / 1000).unwrap(),
        nanos: i32::try_from(millis % 1000).unwrap() * 1_000_000,
    }
}
