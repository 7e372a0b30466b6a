//! Random interleavings of everything a log does, against a model of a few lines.

use std::path::Path;

use core_types::Durability;
use proptest::{collection::vec, prelude::*};
use run_log::{
    AppendError, Batch, CreateError, Created, Follower, NewEvent, NewRun, ReopenError, RunLogs,
    RunState, RunWriter, Verification,
};

use crate::fixture::{at, contents, event, request, run_id, sqlite_at};

const RUNS: usize = 3;

#[derive(Clone, Debug)]
enum Action {
    Create {
        run: usize,
        request: u8,
        first: usize,
    },
    Append {
        run: usize,
        count: usize,
    },
    Submit {
        run: usize,
    },
    Flush {
        run: usize,
    },
    Finish {
        run: usize,
    },
    Reopen {
        run: usize,
    },
    Read {
        run: usize,
        after: usize,
        limit: usize,
    },
    Follow {
        run: usize,
        after: usize,
    },
    Poll,
    Restart,
}

fn action() -> impl Strategy<Value = Action> {
    let run = 0..RUNS;
    prop_oneof![
        2 => (run.clone(), 0..3_u8, 0..3_usize)
            .prop_map(|(run, request, first)| Action::Create { run, request, first }),
        4 => (run.clone(), 0..400_usize).prop_map(|(run, count)| Action::Append { run, count }),
        4 => run.clone().prop_map(|run| Action::Submit { run }),
        2 => run.clone().prop_map(|run| Action::Flush { run }),
        1 => run.clone().prop_map(|run| Action::Finish { run }),
        1 => run.clone().prop_map(|run| Action::Reopen { run }),
        2 => (run.clone(), 0..900_usize, 1..300_usize)
            .prop_map(|(run, after, limit)| Action::Read { run, after, limit }),
        2 => (run, 0..900_usize).prop_map(|(run, after)| Action::Follow { run, after }),
        4 => Just(Action::Poll),
        1 => Just(Action::Restart),
    ]
}

/// The expected state of a run.
#[derive(Default)]
struct Model {
    exists: bool,
    events: Vec<NewEvent>,
    finished: bool,
    writer: Option<RunWriter>,
    /// The writer was fenced, or lost with the process.
    request: Option<u8>,
}

struct World {
    log: RunLogs,
    durability: Durability,
    runs: [Model; RUNS],
    followers: Vec<(usize, Follower)>,
    clock: i64,
}

impl World {
    fn new(log: RunLogs, durability: Durability) -> Self {
        Self {
            log,
            durability,
            runs: Default::default(),
            followers: Vec::new(),
            clock: 0,
        }
    }

    fn next_events(&mut self, count: usize) -> Vec<NewEvent> {
        let next = || {
            self.clock += 1;
            event(self.clock)
        };
        std::iter::repeat_with(next).take(count).collect()
    }

    async fn apply(&mut self, action: &Action) {
        match *action {
            Action::Create {
                run,
                request,
                first,
            } => self.create(run, request, first).await,
            Action::Append { run, count } => {
                let events = self.next_events(count);
                let model = &mut self.runs[run];
                let Some(writer) = &model.writer else { return };
                let appended = writer.append(events.clone()).await;
                if model.finished {
                    assert!(
                        matches!(appended, Err(AppendError::Finished)),
                        "{appended:?}"
                    );
                } else {
                    model.events.extend(events);
                    assert_eq!(appended.unwrap(), model.events.len() as u64);
                }
            }
            Action::Submit { run } => {
                let event = self.next_events(1).remove(0);
                let model = &mut self.runs[run];
                if let Some(writer) = model.writer.as_ref().filter(|_| !model.finished) {
                    model.events.push(event.clone());
                    assert_eq!(
                        writer.submit(event).await.unwrap(),
                        model.events.len() as u64
                    );
                }
            }
            Action::Flush { run } => self.flush(run).await,
            Action::Finish { run } => {
                let events = self.next_events(1);
                let model = &mut self.runs[run];
                if let Some(writer) = model.writer.as_ref().filter(|_| !model.finished) {
                    model.events.extend(events.clone());
                    model.finished = true;
                    let last = writer.finish(5, events).await.unwrap();
                    assert_eq!(last, model.events.len() as u64);
                }
            }
            Action::Reopen { run } => self.reopen(run).await,
            Action::Read { run, after, limit } => {
                self.flush(run).await;
                let read = self
                    .log
                    .read(run_id(run as u128), after as u64, limit)
                    .await;
                let model = &self.runs[run];
                let from = after.min(model.events.len());
                let to = (from + limit).min(model.events.len());
                match read {
                    Ok(events) => assert_eq!(contents(&events), model.events[from..to]),
                    Err(error) => assert!(!model.exists, "{error}"),
                }
            }
            Action::Follow { run, after } => {
                if self.runs[run].exists {
                    self.flush(run).await;
                    let follower = self.log.follow(run_id(run as u128), after as u64).await;
                    self.followers.push((run, follower.unwrap()));
                }
            }
            Action::Poll => self.poll().await,
            // Only a stored log can be opened again; the caller does that.
            Action::Restart => {}
        }
    }

    async fn create(&mut self, run: usize, name: u8, first: usize) {
        let events = self.next_events(first);
        let new = NewRun {
            request: Some(request(&name.to_string(), "same")),
            durability: self.durability,
            ..NewRun::new(run_id(run as u128), "flow", at(1))
        };
        let holder = self
            .runs
            .iter()
            .position(|model| model.request == Some(name));
        match self.log.create(new, events.clone()).await {
            Ok(Created::New(writer)) => {
                assert!(holder.is_none() && !self.runs[run].exists);
                let request = Some(name);
                self.runs[run] = Model {
                    exists: true,
                    events,
                    finished: false,
                    writer: Some(writer),
                    request,
                };
            }
            Ok(Created::Replayed(summary)) => {
                assert_eq!(
                    Some(summary.id),
                    holder.map(|holder| run_id(holder as u128))
                );
            }
            Err(CreateError::RunExists) => assert!(holder.is_none() && self.runs[run].exists),
            Err(error) => panic!("{error:?}"),
        }
    }

    async fn reopen(&mut self, run: usize) {
        // An event that is only submitted may or may not survive a takeover.
        self.flush(run).await;
        let reopened = self.log.reopen(run_id(run as u128)).await;
        let model = &mut self.runs[run];
        match reopened {
            Ok(writer) => {
                assert!(model.exists && !model.finished);
                assert_eq!(writer.last_sequence(), model.events.len() as u64);
                if let Some(fenced) = model.writer.replace(writer) {
                    let refused = fenced.append(Vec::new()).await;
                    assert!(matches!(refused, Err(AppendError::Fenced)), "{refused:?}");
                }
            }
            Err(ReopenError::NoSuchRun) => assert!(!model.exists),
            Err(ReopenError::Finished) => assert!(model.finished),
            Err(error) => panic!("{error:?}"),
        }
    }

    async fn flush(&self, run: usize) {
        if let Some(writer) = &self.runs[run].writer {
            assert_eq!(
                writer.flush().await.unwrap(),
                self.runs[run].events.len() as u64
            );
        }
    }

    /// Lets every follower with unread events read one batch.
    async fn poll(&mut self) {
        for (run, follower) in &mut self.followers {
            let model = &self.runs[*run];
            if let Some(writer) = &model.writer {
                writer.flush().await.unwrap();
            }
            let position = usize::try_from(follower.position()).unwrap();
            if position < model.events.len() {
                let batch = follower.next_batch().await.unwrap();
                let Some(Batch::Events(events)) = batch else {
                    panic!("{batch:?}")
                };
                let expected = &model.events[position..position + events.len()];
                assert_eq!(contents(&events), expected);
            } else if model.finished {
                assert_eq!(follower.next_batch().await.unwrap(), None);
            }
        }
    }

    async fn check_end(&self) {
        for (run, model) in self
            .runs
            .iter()
            .enumerate()
            .filter(|(_, model)| model.exists)
        {
            self.flush(run).await;
            let id = run_id(run as u128);
            let summary = self.log.summary(id).await.unwrap().unwrap();
            assert_eq!(summary.last_sequence, model.events.len() as u64);
            let state = if model.finished {
                RunState::Finished(5)
            } else {
                RunState::Open
            };
            assert_eq!(summary.state, state);
            let verified = self.log.verify(id).await.unwrap();
            let count = model.events.len() as u64;
            assert!(matches!(verified, Verification::Intact { events, .. } if events == count));
        }
    }
}

async fn play_in_memory(actions: &[Action]) {
    let dir = tempfile::tempdir().unwrap();
    let log = sqlite_at(&dir.path().join("runs.db")).await;
    let mut world = World::new(log, Durability::Memory);
    for action in actions {
        world.apply(action).await;
    }
    world.check_end().await;
}

async fn play_in_sqlite(path: &Path, actions: &[Action]) {
    let mut world = World::new(sqlite_at(path).await, Durability::Sync);
    for action in actions {
        if let Action::Restart = action {
            world.log.close().await;
            world.followers.clear();
            for model in &mut world.runs {
                model.writer = None;
            }
            world.log = sqlite_at(path).await;
            // Everything queued before the close was stored by it.
            world.check_end().await;
        } else {
            world.apply(action).await;
        }
    }
    world.check_end().await;
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_memory_log_equals_the_model(actions in vec(action(), 1..80)) {
        runtime().block_on(play_in_memory(&actions));
    }

    #[test]
    fn the_sqlite_log_equals_the_model(actions in vec(action(), 1..80)) {
        let dir = tempfile::tempdir().unwrap();
        runtime().block_on(play_in_sqlite(&dir.path().join("runs.db"), &actions));
    }
}
