//! Runs that wait for their turn (rules W8 and W52).

use contracts::tavern::common::v1::run_event::Kind;
use contracts::tavern::common::v1::{ErrorReason, Run, RunState};
use contracts::tavern::run::v1::{
    CancelRunRequest, GetRunRequest, ListRunsRequest, PauseRunRequest, ResumeRunRequest,
};
use serde_json::json;
use tonic::{Code, Status};
use workflow_execution::WorkflowSettings;

use crate::support::*;

fn one_at_a_time(settings: &mut WorkflowSettings) {
    settings.max_active_runs = 1;
    settings.max_queued_runs = 2;
}

fn dispatched(kind: &Kind) -> bool {
    matches!(kind, Kind::CallDispatched(_))
}

impl World {
    /// Starts a run whose tool answers once the registry is released.
    async fn start_call(&self) -> Result<Run, Status> {
        let definition = json!({"nodes": [tool("t", "wait")]});
        let request = of_definition(&definition, json!({}));
        let started = self.client.clone().start_run(request).await?;
        Ok(started.into_inner().run.unwrap())
    }

    async fn state_of(&self, run: &Run) -> RunState {
        let run_id = run.run_id.clone();
        let found = self.runs.clone().get_run(GetRunRequest { run_id }).await;
        found.unwrap().into_inner().run.unwrap().state()
    }

    async fn queued(&self) -> Vec<String> {
        let request = ListRunsRequest {
            state: RunState::Queued.into(),
            ..ListRunsRequest::default()
        };
        let page = self.runs.clone().list_runs(request).await.unwrap();
        let runs = page.into_inner().runs.into_iter();
        runs.map(|run| run.run_id).collect()
    }

    async fn cancel_run(&self, run: &Run) -> RunState {
        let request = CancelRunRequest {
            run_id: run.run_id.clone(),
            reason: "not wanted".into(),
        };
        let cancelled = self.runs.clone().cancel_run(request).await;
        cancelled.unwrap().into_inner().run.unwrap().state()
    }

    async fn words_of(&self, run: &Run) -> Vec<String> {
        words(&self.events(&run.run_id).await)
    }
}

#[tokio::test]
async fn w8_runs_beyond_the_limit_are_queued_and_start_in_order() {
    let world = World::with(one_at_a_time).await;
    let first = world.start_call().await.unwrap();
    let second = world.start_call().await.unwrap();
    let third = world.start_call().await.unwrap();
    assert_eq!(first.state(), RunState::Running);
    assert_eq!(second.state(), RunState::Queued);
    assert_eq!(world.state_of(&third).await, RunState::Queued);
    let queued = [third.run_id.clone(), second.run_id.clone()];
    assert_eq!(world.queued().await, queued);
    world.registry.release();
    let expected = [
        "run started",
        "run queued",
        "run dequeued",
        "t started",
        "t dispatched",
        "call settled",
        "t succeeded",
        "run finished",
    ];
    assert_eq!(world.words_of(&second).await, expected);
    world.events(&third.run_id).await;
    let asked = world.registry.asked().into_iter();
    let asked: Vec<String> = asked.map(|asked| asked.effect_id).collect();
    let wanted = [&first, &second, &third].map(|run| format!("{}/t/0", run.run_id));
    assert_eq!(asked, wanted);
}

#[tokio::test]
async fn w52_a_full_queue_refuses_with_a_time_to_try_again() {
    let world = World::with(one_at_a_time).await;
    for _ in 0..3 {
        world.start_call().await.unwrap();
    }
    let refused = world.start_call().await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert_eq!(grpc_kit::reason(&refused), Some(ErrorReason::Overloaded));
    assert!(grpc_kit::retry_after(&refused).is_some());
}

#[tokio::test]
async fn cancel_ends_a_queued_run_at_once() {
    let world = World::with(one_at_a_time).await;
    let first = world.start_call().await.unwrap();
    let second = world.start_call().await.unwrap();
    let third = world.start_call().await.unwrap();
    assert_eq!(world.cancel_run(&second).await, RunState::Cancelled);
    assert_eq!(world.state_of(&first).await, RunState::Running);
    let expected = [
        "run started",
        "run queued",
        "cancel requested",
        "run finished",
    ];
    assert_eq!(world.words_of(&second).await, expected);
    world.registry.release();
    let outcome = world.outcome(&third.run_id).await;
    assert_eq!(outcome.state(), RunState::Succeeded);
}

#[tokio::test]
async fn queued_runs_are_queued_after_a_restart_and_behind_those_that_had_begun() {
    let world = World::with(one_at_a_time).await;
    let first = world.start_call().await.unwrap();
    world.events_until(&first.run_id, dispatched).await;
    let second = world.start_call().await.unwrap();
    let third = world.start_call().await.unwrap();
    let world = world.restart_with(one_at_a_time).await;
    assert_eq!(world.state_of(&second).await, RunState::Queued);
    assert_eq!(world.state_of(&third).await, RunState::Queued);
    assert!(world.start_call().await.is_err(), "the queue is full");
    world.registry.release();
    for run in [&first, &second, &third] {
        let outcome = world.outcome(&run.run_id).await;
        assert_eq!(outcome.state(), RunState::Succeeded);
    }
    let words = world.words_of(&second).await;
    let queued = words.iter().filter(|word| *word == "run queued").count();
    assert_eq!(queued, 1, "{words:?}");
}

#[tokio::test]
async fn the_turn_of_a_paused_run_comes_when_it_is_resumed() {
    let world = World::with(one_at_a_time).await;
    let first = world.start_call().await.unwrap();
    let second = world.start_call().await.unwrap();
    let pause = PauseRunRequest {
        run_id: second.run_id.clone(),
        reason: "later".into(),
    };
    world.runs.clone().pause_run(pause).await.unwrap();
    world.registry.release();
    world.events(&first.run_id).await;
    assert_eq!(world.state_of(&second).await, RunState::Paused);
    let resume = ResumeRunRequest {
        run_id: second.run_id.clone(),
    };
    world.runs.clone().resume_run(resume).await.unwrap();
    let words = world.words_of(&second).await;
    let expected = [
        "run started",
        "run queued",
        "run paused: later",
        "run resumed",
        "run dequeued",
        "t started",
    ];
    assert_eq!(words[..6], expected);
}
