//! Pausing and resuming runs.

use contracts::tavern::common::v1::run_event::Kind;
use contracts::tavern::common::v1::{ErrorReason, Run, RunOptions, RunState};
use contracts::tavern::run::v1::{
    CancelRunRequest, GetRunRequest, ListRunsRequest, PauseRunRequest, ResumeRunRequest,
};
use serde_json::{Value, json};
use tonic::{Code, Status};

use crate::support::*;

/// A tool that waits, and two nodes after it.
fn chain() -> Value {
    json!({
        "nodes": [
            tool("t", "wait"),
            {"id": "merge", "type": "core:TextMerge"},
            tool("next", "echo"),
        ],
        "edges": [edge("t", "status", "merge", "text_inputs"), edge("merge", "merged_text", "next", "x")],
    })
}

fn dispatched(kind: &Kind) -> bool {
    matches!(kind, Kind::CallDispatched(_))
}

impl World {
    pub(crate) async fn pause(&self, run_id: &str) -> Result<Run, Status> {
        let request = PauseRunRequest {
            run_id: run_id.to_owned(),
            reason: "wait for me".into(),
        };
        let response = self.runs.clone().pause_run(request).await?;
        Ok(response.into_inner().run.unwrap())
    }

    pub(crate) async fn resume(&self, run_id: &str) -> Result<Run, Status> {
        let request = ResumeRunRequest {
            run_id: run_id.to_owned(),
        };
        let response = self.runs.clone().resume_run(request).await?;
        Ok(response.into_inner().run.unwrap())
    }

    pub(crate) async fn state(&self, run_id: &str) -> RunState {
        let request = GetRunRequest {
            run_id: run_id.to_owned(),
        };
        let response = self.runs.clone().get_run(request).await;
        response.unwrap().into_inner().run.unwrap().state()
    }

    async fn ids_in(&self, state: RunState) -> Vec<String> {
        let request = ListRunsRequest {
            state: state.into(),
            ..ListRunsRequest::default()
        };
        let page = self.runs.clone().list_runs(request).await.unwrap();
        let runs = page.into_inner().runs.into_iter();
        runs.map(|run| run.run_id).collect()
    }
}

#[tokio::test]
async fn a_paused_run_starts_no_node_until_it_is_resumed() {
    let world = World::new().await;
    let run = world.start(&chain(), json!({})).await;
    world.events_until(&run.run_id, dispatched).await;
    let paused = world.pause(&run.run_id).await.unwrap();
    assert_eq!(paused.state(), RunState::Paused);
    assert_eq!(world.pause(&run.run_id).await.unwrap(), paused);
    assert_eq!(world.ids_in(RunState::Paused).await, [run.run_id.as_str()]);
    assert!(world.ids_in(RunState::Running).await.is_empty());
    world.registry.release();
    // Nodes that had begun end by themselves.
    world
        .events_until(&run.run_id, |kind| matches!(kind, Kind::NodeFinished(_)))
        .await;
    assert_eq!(world.state(&run.run_id).await, RunState::Paused);
    let world = world.restart().await;
    assert_eq!(world.state(&run.run_id).await, RunState::Paused);
    let resumed = world.resume(&run.run_id).await.unwrap();
    assert_eq!(resumed.state(), RunState::Running);
    let words = words(&world.events(&run.run_id).await);
    assert_eq!(
        words,
        [
            "run started",
            "t started",
            "t dispatched",
            "run paused: wait for me",
            "call settled",
            "t succeeded",
            "run resumed",
            "merge succeeded",
            "next started",
            "next dispatched",
            "call settled",
            "next succeeded",
            "run finished"
        ]
    );
    let status = world.pause(&run.run_id).await.unwrap_err();
    assert_eq!(
        (status.code(), grpc_kit::reason(&status)),
        (Code::FailedPrecondition, Some(ErrorReason::RunFinished))
    );
    let status = world.resume(&run.run_id).await.unwrap_err();
    assert_eq!(grpc_kit::reason(&status), Some(ErrorReason::RunFinished));
}

#[tokio::test]
async fn a_run_that_is_resumed_without_a_restart_continues() {
    let world = World::new().await;
    let run = world.start(&chain(), json!({})).await;
    world.events_until(&run.run_id, dispatched).await;
    world.pause(&run.run_id).await.unwrap();
    world.registry.release();
    world
        .events_until(&run.run_id, |kind| matches!(kind, Kind::NodeFinished(_)))
        .await;
    world.resume(&run.run_id).await.unwrap();
    world.resume(&run.run_id).await.unwrap_or_default();
    let outcome = world.outcome(&run.run_id).await;
    assert_eq!(outcome.state(), RunState::Succeeded);
}

#[tokio::test]
async fn the_deadline_of_a_paused_run_still_holds() {
    let world = World::new().await;
    let mut request = of_definition(&chain(), json!({}));
    request.options = Some(RunOptions {
        durability: 0,
        timeout: Some(prost_types::Duration {
            seconds: 3,
            nanos: 0,
        }),
    });
    let run = world.begin(request).await;
    world.events_until(&run.run_id, dispatched).await;
    world.pause(&run.run_id).await.unwrap();
    world.registry.release();
    let outcome = world.outcome(&run.run_id).await;
    assert_eq!(outcome.error.unwrap().code, "deadline_exceeded");
}

#[tokio::test]
async fn a_paused_run_can_be_cancelled() {
    let world = World::new().await;
    let run = world.start(&chain(), json!({})).await;
    world.events_until(&run.run_id, dispatched).await;
    world.pause(&run.run_id).await.unwrap();
    let request = CancelRunRequest {
        run_id: run.run_id.clone(),
        reason: String::new(),
    };
    let cancelled = world.runs.clone().cancel_run(request).await.unwrap();
    let run = cancelled.into_inner().run.unwrap();
    assert_eq!(run.state(), RunState::Cancelled);
}
