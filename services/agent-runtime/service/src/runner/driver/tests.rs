//! Recorded turns, carried out again event by event.
//!
//! `tests/fixtures/turns` holds turns as `ExportTurn` returns them.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use agent_domain::{plan::TurnInput, turn::Command};
use contracts::tavern::common::v1::{
    Durability, RunEvent, RunOptions, RunStarted, run_event::Kind,
};
use core_types::{Clock, RunOwner, SystemIds, Timestamp};
use grpc_kit::CallContext;
use run_events::{OpenRun, Recorder, Runs, StartRun, Started};
use run_log::RunLogs;
use sql_store::SqliteOptions;
use tempfile::TempDir;
use turn_log::{
    journal,
    replay::{opening, time_of},
    state::TurnState,
};

use super::LiveLog;
use crate::runner::{TURN, fresh, left, replay::Fixture, turns::run_of};

/// The time that a test sets.
#[derive(Clone, Debug, Default)]
struct SetClock(Arc<AtomicI64>);

impl SetClock {
    fn set(&self, time: Timestamp) {
        self.0.store(time.unix_nanos(), Ordering::SeqCst);
    }
}

impl Clock for SetClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix_nanos(self.0.load(Ordering::SeqCst))
    }
}

/// The points at which a turn that is carried out again is compared with its log.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Cuts {
    /// After each event, which is recorded at the time that it had.
    EachEvent,
    /// At the commits of a turn; all events happen at one time.
    Commits,
}

/// A recorded turn that is carried out again.
struct Again {
    name: String,
    cuts: Cuts,
    runs: Runs,
    recorder: Recorder,
    log: LiveLog,
    /// The sequences at which messages are accepted, by those of the record.
    accepted: HashMap<u64, u64>,
    compared: usize,
    _directory: TempDir,
}

impl Again {
    async fn begin(name: &str, cuts: Cuts, fixture: &Fixture, clock: &SetClock) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let options = SqliteOptions::new(directory.path().join("turns.db"));
        let logs = RunLogs::open(options).await.unwrap();
        let runs = Runs::new(
            logs,
            RunOwner::Agent,
            Arc::new(clock.clone()),
            Arc::new(SystemIds),
        );
        let plan = &fixture.header.plan;
        let (first, started) = beginning(fixture);
        clock.set(time_of(first));
        let begins_with = fixture.own_events().filter_map(|event| event.kind.clone());
        let start = StartRun {
            input_json: started.input_json.clone(),
            input_is_model_text: started.input_is_model_text,
            options: Some(RunOptions {
                durability: Durability::Memory.into(),
                ..RunOptions::default()
            }),
            first_events: begins_with.filter(is_beginning).collect(),
            ..run_of(plan)
        };
        let Started::New(recorder, _) = runs.start(&CallContext::outermost(), start).await.unwrap()
        else {
            panic!("the run is new");
        };
        let is_fork = fixture
            .own_events()
            .any(|event| matches!(event.kind, Some(Kind::TurnForked(_))));
        let state = match is_fork {
            true => found(&runs, &recorder).await,
            false => {
                let given = fixture.own_events().filter_map(|event| event.kind.as_ref());
                let input = TurnInput {
                    history: given.filter_map(journal::given_message).collect(),
                    opening: opening(plan, started).unwrap(),
                };
                fresh(plan, &input, clock.now())
            }
        };
        Self {
            name: name.to_owned(),
            cuts,
            log: LiveLog::new(recorder.clone(), state),
            runs,
            recorder,
            accepted: HashMap::new(),
            compared: 0,
            _directory: directory,
        }
    }

    /// Lets an event happen once more, as the turn let it happen.
    async fn happen(&mut self, event: &RunEvent, mut kind: Kind) {
        if let Kind::Steered(steered) = &mut kind {
            let recorded = steered.accepted_sequence;
            steered.accepted_sequence = self.accepted.get(&recorded).copied().unwrap_or_default();
        }
        let is_read = matches!(
            kind,
            Kind::Text(_) | Kind::ToolSelected(_) | Kind::Observation(_)
        );
        if is_read && matches!(self.log.turn().next(), Command::ReadOpening(_)) {
            self.log.read_opening().unwrap();
        }
        let leaves = matches!(kind, Kind::CallDispatched(_));
        match kind {
            // The run or a call writes them.
            Kind::RunQueued(_)
            | Kind::RunDequeued(_)
            | Kind::RunPaused(_)
            | Kind::RunResumed(_)
            | Kind::CancelRequested(_)
            | Kind::OutputChunk(_)
            | Kind::CallInDoubt(_) => drop(self.recorder.record(vec![kind]).await.unwrap()),
            Kind::SteeringAccepted(_) => {
                let sequence = self.log.note_now(kind).await.unwrap();
                self.accepted.insert(event.sequence, sequence);
            }
            Kind::Steered(_) | Kind::BudgetsEdited(_) | Kind::ConversationCompacted(_) => {
                self.log.note_now(kind).await.unwrap();
            }
            Kind::Text(_) | Kind::Thinking(_) => self.log.submit(kind).await.unwrap(),
            kind => self.log.note(kind).unwrap(),
        }
        if leaves || self.cuts == Cuts::EachEvent {
            self.compare(event).await;
        }
    }

    /// Compares the state with that of a process that finds the log.
    async fn compare(&mut self, event: &RunEvent) {
        self.log.commit().await.unwrap();
        self.recorder.flush().await.unwrap();
        let found = parts(&found(&self.runs, &self.recorder).await);
        for (part, live) in parts(self.log.state()) {
            let (name, cuts, at) = (&self.name, self.cuts, event.sequence);
            assert_eq!(live, found[&part], "{part} of {name} at {at}, {cuts:?}");
        }
        self.compared += 1;
    }
}

/// Returns the state of a turn as a process finds it after a crash.
async fn found(runs: &Runs, recorder: &Recorder) -> TurnState {
    let run = recorder.run_id();
    let (own, run_id) = (CallContext::outermost(), run.to_string());
    let events = runs.events(&own, &run_id).await.unwrap();
    let open = OpenRun {
        recorder: recorder.clone(),
        meta: runs.meta(&own, &run_id).await.unwrap(),
        kind: TURN.to_owned(),
        created: recorder.now(),
        started: run_events::beginning(run, &events).unwrap().clone(),
        events,
    };
    let (_, state, _) = left(&open).unwrap();
    state
}

fn recorded() -> Vec<(String, Fixture)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/turns");
    let files = std::fs::read_dir(folder).unwrap();
    let fixtures = files.map(|file| {
        let path = file.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        (name, Fixture::read(&text).unwrap())
    });
    fixtures.collect()
}

fn beginning(fixture: &Fixture) -> (&RunEvent, &RunStarted) {
    let first = fixture.own_events().next().unwrap();
    match &first.kind {
        Some(Kind::RunStarted(started)) => (first, started),
        other => panic!("a turn begins with its start, not with {other:?}"),
    }
}

fn is_beginning(kind: &Kind) -> bool {
    matches!(
        kind,
        Kind::TurnForked(_) | Kind::ResultTaken(_) | Kind::MessageGiven(_)
    )
}

/// Returns the parts of a state by their names.
fn parts(state: &TurnState) -> BTreeMap<String, String> {
    let written = format!("{state:#?}");
    let mut parts = BTreeMap::new();
    let mut name = String::new();
    for line in written.lines().skip(1) {
        let part = line
            .strip_prefix("    ")
            .filter(|part| !part.starts_with([' ', '}', ']', ')']));
        if let Some((part, _)) = part.and_then(|part| part.split_once(':')) {
            name = part.to_owned();
        }
        *parts.entry(name.clone()).or_default() += line;
    }
    parts
}

#[tokio::test]
async fn the_state_of_a_live_turn_is_that_which_its_log_gives_at_every_event() {
    let mut compared = 0;
    for (name, fixture) in recorded() {
        for cuts in [Cuts::EachEvent, Cuts::Commits] {
            let clock = SetClock::default();
            let mut again = Again::begin(&name, cuts, &fixture, &clock).await;
            let last = fixture.own_events().last().unwrap();
            for event in fixture.own_events() {
                if cuts == Cuts::EachEvent {
                    clock.set(time_of(event));
                }
                match event.kind.clone().unwrap() {
                    Kind::RunStarted(_) | Kind::RunFinished(_) => {}
                    kind if is_beginning(&kind) => {}
                    kind => again.happen(event, kind).await,
                }
            }
            again.compare(last).await;
            compared += again.compared;
        }
    }
    assert!(compared > 200, "{compared} comparisons");
}

#[tokio::test]
async fn every_part_of_the_state_follows_from_the_log() {
    let mut unchanged: Option<Vec<String>> = None;
    for (name, fixture) in recorded() {
        let plan = &fixture.header.plan;
        let own = || fixture.own_events();
        let (first, started) = beginning(&fixture);
        let native = plan.tools.is_native();
        let opening = opening(plan, started).unwrap();
        let begun = TurnState::begin(plan, native, opening, time_of(first));
        let before = parts(&begun);
        let unchanged = unchanged.get_or_insert_with(|| before.keys().cloned().collect());
        for last in 1..=own().count() {
            let state = TurnState::replay(plan, native, own().take(last));
            let after = parts(&state.expect(&name));
            unchanged.retain(|part| before.get(part) == after.get(part));
        }
    }
    // Nothing but the start says how a turn opened.
    assert_eq!(unchanged.unwrap(), ["opening"]);
}
