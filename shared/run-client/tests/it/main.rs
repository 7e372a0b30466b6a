//! The ends of calls and child runs for an owner, whatever their service answers.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helper functions of tests fail by panicking, as tests do"
)]

mod calls;
mod child;
mod scripted;

use std::sync::Arc;

use contracts::tavern::common::v1::{Durability, Run, RunOptions};
use core_types::{RunOwner, SystemClock, SystemIds};
use grpc_kit::CallContext;
use run_events::{End, Recorder, RunControl, Runs, StartRun, Started, outcome};
use run_log::{Hash, RunLogs};
use sql_store::SqliteOptions;
use tempfile::TempDir;
use tokio::sync::oneshot;

/// Returns a service's runs, and the directory of their log.
async fn runs() -> (Runs, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let options = SqliteOptions::new(directory.path().join("test.runs.db"));
    let logs = RunLogs::open(options).await.unwrap();
    let (clock, ids) = (Arc::new(SystemClock), Arc::new(SystemIds));
    let runs = Runs::new(logs, RunOwner::Workflow, clock, ids);
    (runs, directory)
}

/// Starts a run that works until `work` has ended. Returns its id.
async fn started<W, F>(runs: &Runs, work: W) -> String
where
    W: FnOnce(Recorder, RunControl) -> F + Send + 'static,
    F: Future<Output = End> + Send + 'static,
{
    let options = RunOptions {
        durability: Durability::Memory.into(),
        timeout: None,
    };
    let start = StartRun {
        kind: "test",
        owner: None,
        subject: String::new(),
        conversation_id: String::new(),
        request_id: String::new(),
        scope: "test",
        body_hash: Hash::of(b""),
        input_json: "null".to_owned(),
        input_is_model_text: false,
        options: Some(options),
        can_wait: false,
        concurrency_key: String::new(),
        priority: 0,
        deadline_cap: None,
        grant: None,
        owner_data: serde_json::Value::Null,
        first_events: Vec::new(),
        forks: None,
    };
    let Started::New(recorder, _) = runs.start(&CallContext::outermost(), start).await.unwrap()
    else {
        panic!("the run is not new");
    };
    let run_id = recorder.run_id().to_string();
    let own = recorder.clone();
    runs.execute(recorder, move |control| work(own, control));
    run_id
}

/// Does `work` inside a run, which `work` receives and may cancel by its id, and returns its
/// outcome.
async fn within_run<W, F, T>(work: W) -> T
where
    W: FnOnce(Runs, Recorder, RunControl) -> F + Send + 'static,
    F: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    let ((runs, _directory), (done, result)) = (runs().await, oneshot::channel());
    let inside = runs.clone();
    started(&runs, move |recorder, control| async move {
        let _ = done.send(work(inside, recorder, control).await);
        End::Finished(outcome::succeeded("null".to_owned()))
    })
    .await;
    result.await.unwrap()
}

/// Returns the state of a run as a word.
fn state(run: &Run) -> &'static str {
    run.state().as_str_name().trim_start_matches("RUN_STATE_")
}
