//! Runs that only wait leave memory, and are woken (rules W37 and W38).

use std::time::Duration;

use contracts::tavern::common::v1::run_event::Kind;
use contracts::tavern::common::v1::{self as common, RunOptions, RunState};
use contracts::tavern::run::v1::{
    AnswerWaitRequest, CancelRunRequest, ListWaitsRequest, SignalRunRequest,
};
use contracts::tavern::workflow::v1::{RunConcurrency, StartRunRequest};
use serde_json::{Value, json};

use crate::support::*;

/// The number of attempts to meet the moment of leaving.
const TIMES: usize = 150;

/// One node that waits for the signal `go`, whose payload is the output of the run.
fn go() -> Value {
    json!({
        "nodes": [
            {"id": "s", "type": "core:WaitSignal", "configValues": {"name": "go"}},
            {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": [edge("s", "payload", "out", "v")],
        "interfaceOutputs": {"v": {"dataFlowType": "WILDCARD"}},
    })
}

fn timer(seconds: f64) -> Value {
    json!({
        "nodes": [
            {"id": "t", "type": "core:Timer", "inputValues": {"value": 7, "duration": seconds}},
            tool("after", "echo"),
            {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": [edge("t", "value", "after", "x"), edge("t", "value", "out", "v")],
        "interfaceOutputs": {"v": {"dataFlowType": "WILDCARD"}},
    })
}

/// Waits for `go` in each iteration of a loop and adds the payloads up.
fn adding(count: usize) -> Value {
    json!({
        "nodes": [
            {"id": "loop", "type": "core:LoopZone",
             "configValues": {"variables": [{"key": "sum", "dataFlowType": "FLOAT", "default": 0}],
                "maxIterations": 1_000},
             "inputValues": {"count": count}},
            {"id": "zin", "type": "core:ZoneInput", "parentNode": "loop"},
            {"id": "s", "type": "core:WaitSignal", "parentNode": "loop", "configValues": {"name": "go"}},
            {"id": "add", "type": "core:MathOperation", "parentNode": "loop",
             "configValues": {"operation": "add"}},
            {"id": "zout", "type": "core:ZoneOutput", "parentNode": "loop"},
            {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": [edge("zin", "sum", "add", "a"), edge("s", "payload", "add", "b"),
            edge("add", "result", "zout", "sum"), edge("loop", "sum", "out", "sum")],
        "interfaceOutputs": {"sum": {"dataFlowType": "FLOAT"}},
    })
}

impl World {
    /// A world whose runs leave memory as soon as they only wait.
    async fn restful() -> Self {
        let world = Self::with(|settings| settings.rest_after = Duration::ZERO).await;
        world.service.recover().await.unwrap();
        world
    }

    /// Starts a run and waits until it has left memory.
    async fn start_resting(&self, request: StartRunRequest) -> String {
        let run = self.begin(request).await.run_id;
        self.until_out_of_memory().await;
        run
    }

    async fn until_out_of_memory(&self) {
        while self.service.runs_in_memory() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn go(&self, run_id: &str, payload: Value) {
        let request = SignalRunRequest {
            run_id: run_id.to_owned(),
            name: "go".into(),
            payload_json: payload.to_string(),
            signal_id: payload.to_string(),
        };
        self.runs.clone().signal_run(request).await.unwrap();
    }

    async fn cancel(&self, run_id: &str) -> RunState {
        let request = CancelRunRequest {
            run_id: run_id.to_owned(),
            reason: "enough".into(),
        };
        let cancelled = self.runs.clone().cancel_run(request).await.unwrap();
        cancelled.into_inner().run.unwrap().state()
    }
}

#[tokio::test]
async fn w37_a_run_that_only_waits_leaves_memory_until_its_timer_is_due() {
    let world = World::restful().await;
    let run = world
        .start_resting(of_definition(&timer(0.5), json!({})))
        .await;
    assert_eq!(world.state(&run).await, RunState::Waiting);
    let events = world.events(&run).await;
    let expected = ["run started", "t waiting", "t woken: due", "t succeeded"];
    assert_eq!(words(&events)[..4], expected);
    let waited = events.iter().find_map(|event| match event.kind.as_ref()? {
        Kind::NodeFinished(finished) if finished.node_id == "t" => finished.duration,
        _ => None,
    });
    let waited = Duration::try_from(waited.unwrap()).unwrap();
    assert!(waited >= Duration::from_millis(500), "{waited:?}");
    assert_eq!(result(&world.outcome(&run).await), json!({"v": 7}));
}

#[tokio::test]
async fn w37_a_signal_wakes_a_run_and_a_look_at_its_waits_does_not() {
    let world = World::restful().await;
    let run = world.start_resting(of_definition(&go(), json!({}))).await;
    let request = ListWaitsRequest {
        run_id: run.clone(),
        ..ListWaitsRequest::default()
    };
    let waits = world.runs.clone().list_waits(request).await.unwrap();
    assert_eq!(waits.into_inner().waits[0].name, "go");
    assert_eq!(world.service.runs_in_memory(), 0);
    world.go(&run, json!(3)).await;
    assert_eq!(result(&world.outcome(&run).await), json!({"v": 3}));
}

#[tokio::test]
async fn w37_an_answer_wakes_a_run() {
    let world = World::restful().await;
    let definition = json!({"nodes": [
        {"id": "h", "type": "core:HumanInput", "configValues": {"title": "Now?", "choices": ["yes"]}},
    ]});
    let run = world
        .start_resting(of_definition(&definition, json!({})))
        .await;
    let request = AnswerWaitRequest {
        run_id: run.clone(),
        wait_id: format!("{run}/h/0"),
        answer_json: json!("yes").to_string(),
        ..AnswerWaitRequest::default()
    };
    world.runs.clone().answer_wait(request).await.unwrap();
    assert_eq!(world.outcome(&run).await.state(), RunState::Succeeded);
}

#[tokio::test]
async fn w42_a_pause_holds_a_run_that_rested_until_it_is_resumed() {
    let world = World::restful().await;
    let run = world
        .start_resting(of_definition(&timer(0.3), json!({})))
        .await;
    world.pause(&run).await.unwrap();
    assert_eq!(world.state(&run).await, RunState::Paused);
    let woken = |kind: &Kind| matches!(kind, Kind::NodeWoken(_));
    world.events_until(&run, woken).await;
    world.resume(&run).await.unwrap();
    let words = words(&world.events(&run).await);
    let place = |word: &str| words.iter().position(|found| found == word).unwrap();
    assert!(place("run resumed") < place("after started"), "{words:?}");
    // A run that is resumed while it waits leaves memory again.
    let run = world.start_resting(of_definition(&go(), json!({}))).await;
    world.pause(&run).await.unwrap();
    assert_eq!(world.service.runs_in_memory(), 1);
    world.resume(&run).await.unwrap();
    world.until_out_of_memory().await;
    assert_eq!(world.state(&run).await, RunState::Waiting);
}

/// A tool that fails twice and succeeds at its third attempt, or always fails, with a retry each
/// hour.
fn hourly(tool_id: &str, execution: Value) -> Value {
    let mut node = tool("t", tool_id);
    let retry =
        json!({"maxAttempts": 9, "initial": "1h", "max": "1h", "jitter": 0, "on": ["domain"]});
    node["configValues"]["execution"] = execution;
    node["configValues"]["execution"]["retry"] = retry;
    json!({"nodes": [node]})
}

#[tokio::test]
async fn w20_a_long_pause_before_another_attempt_is_a_wait_of_the_run() {
    let world = World::restful().await;
    let day = StartRunRequest {
        options: Some(RunOptions {
            timeout: prost_types::Duration::try_from(Duration::from_secs(86_400)).ok(),
            ..RunOptions::default()
        }),
        ..of_definition(&hourly("recovers", json!({})), json!({}))
    };
    let run = world.start_resting(day).await;
    assert_eq!(world.state(&run).await, RunState::Waiting);
    let request = ListWaitsRequest {
        run_id: run.clone(),
        ..ListWaitsRequest::default()
    };
    let waits = world.runs.clone().list_waits(request).await.unwrap();
    let wait = waits.into_inner().waits.remove(0);
    assert_eq!(wait.kind(), common::WaitKind::Retry);
    let pause = wait.due.unwrap().seconds - wait.create_time.unwrap().seconds;
    assert!((3_599..=3_600).contains(&pause), "{pause}");
    // Half an hour later it still rests, and the time at which it is due is as it was.
    world.clock.advance(1_800);
    let world = world
        .restart_with(|settings| settings.rest_after = Duration::ZERO)
        .await;
    assert_eq!(world.service.runs_in_memory(), 0);
    assert_eq!(world.registry.asked().len(), 1);
    world.clock.advance(1_800);
    let world = world
        .restart_with(|settings| settings.rest_after = Duration::ZERO)
        .await;
    let second = |kind: &Kind| matches!(kind, Kind::NodeRetrying(retry) if retry.attempt == 2);
    world.events_until(&run, second).await;
    world.until_out_of_memory().await;
    // A paused run starts no attempt although its time has come.
    world.pause(&run).await.unwrap();
    world.clock.advance(3_600);
    let world = world.killed().await;
    assert_eq!(world.registry.asked().len(), 2);
    world.resume(&run).await.unwrap();
    assert_eq!(world.outcome(&run).await.state(), RunState::Succeeded);
    let expected = [
        "run started",
        "t started",
        "t dispatched",
        "call settled",
        "t attempt 1 failed",
        "t waiting",
        "t woken: due",
        "call settled",
        "t attempt 2 failed",
        "t waiting",
    ];
    assert_eq!(words(&world.events(&run).await)[..10], expected);
}

#[tokio::test]
async fn w19_the_time_of_all_attempts_runs_on_while_their_run_rests() {
    let world = World::restful().await;
    let request = StartRunRequest {
        options: Some(RunOptions {
            timeout: prost_types::Duration::try_from(Duration::from_secs(86_400)).ok(),
            ..RunOptions::default()
        }),
        ..of_definition(&hourly("fail", json!({"totalTimeout": "90m"})), json!({}))
    };
    let run = world.start_resting(request).await;
    world.clock.advance(3_600);
    let world = world.restart().await;
    assert_eq!(
        world.outcome(&run).await.error.unwrap().code,
        "failed_as_asked"
    );
    assert_eq!(world.registry.asked().len(), 2);
}

#[tokio::test]
async fn w38_a_run_that_rests_is_cancelled_and_ends_at_its_deadline() {
    let world = World::restful().await;
    let run = world.start_resting(of_definition(&go(), json!({}))).await;
    assert_eq!(world.cancel(&run).await, RunState::Cancelled);
    let short = StartRunRequest {
        options: Some(RunOptions {
            timeout: prost_types::Duration::try_from(Duration::from_millis(300)).ok(),
            ..RunOptions::default()
        }),
        ..of_definition(&go(), json!({}))
    };
    let run = world.start_resting(short).await;
    let outcome = world.outcome(&run).await;
    assert_eq!(outcome.state(), RunState::Failed);
    assert_eq!(outcome.error.unwrap().code, "deadline_exceeded");
}

#[tokio::test]
async fn w38_a_start_leaves_runs_that_rest_where_they_are() {
    let world = World::restful().await;
    let signalled = world.start_resting(of_definition(&go(), json!({}))).await;
    let timed = world
        .start_resting(of_definition(&timer(0.5), json!({})))
        .await;
    let world = world
        .restart_with(|settings| settings.rest_after = Duration::ZERO)
        .await;
    assert_eq!(world.service.runs_in_memory(), 0);
    assert_eq!(result(&world.outcome(&timed).await), json!({"v": 7}));
    world.go(&signalled, json!(5)).await;
    assert_eq!(result(&world.outcome(&signalled).await), json!({"v": 5}));
}

#[tokio::test]
async fn w38_what_wakes_a_run_survives_the_process_being_killed() {
    let world = World::restful().await;
    let run = world.start_resting(of_definition(&go(), json!({}))).await;
    world.pause(&run).await.unwrap();
    world.go(&run, json!(5)).await;
    // The signal is in the log, and no effect of it on the run.
    let world = world.killed().await;
    world.resume(&run).await.unwrap();
    assert_eq!(result(&world.outcome(&run).await), json!({"v": 5}));
}

#[tokio::test]
async fn w37_iterations_of_a_map_wait_out_of_memory_each_for_itself() {
    let world = World::restful().await;
    let definition = json!({
        "nodes": [
            {"id": "map", "type": "core:MapList", "configValues": {"concurrency": 3},
             "inputValues": {"items": [1, 2, 3]}},
            {"id": "zin", "type": "core:ZoneInput", "parentNode": "map"},
            {"id": "s", "type": "core:WaitSignal", "parentNode": "map", "configValues": {"name": "go"}},
            {"id": "zout", "type": "core:ZoneOutput", "parentNode": "map"},
            {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": [edge("zin", "item", "s", "value"), edge("s", "payload", "zout", "result"),
            edge("map", "results", "out", "v")],
        "interfaceOutputs": {"v": {"dataFlowType": "ARRAY"}},
    });
    let run = world
        .start_resting(of_definition(&definition, json!({})))
        .await;
    for payload in ["a", "b", "c"] {
        world.go(&run, json!(payload)).await;
        if payload != "c" {
            world.until_out_of_memory().await;
        }
    }
    let given = result(&world.outcome(&run).await);
    assert_eq!(given, json!({"v": ["a", "b", "c"]}));
}

#[tokio::test]
async fn w50_a_run_keeps_its_key_while_it_waits() {
    let world = World::restful().await;
    let keyed = || StartRunRequest {
        concurrency: Some(RunConcurrency {
            key: "k".into(),
            ..RunConcurrency::default()
        }),
        ..of_definition(&go(), json!({}))
    };
    let first = world.begin(keyed()).await.run_id;
    let waiting = |kind: &Kind| matches!(kind, Kind::NodeWaiting(_));
    world.events_until(&first, waiting).await;
    let second = world.begin(keyed()).await.run_id;
    assert_eq!(world.state(&second).await, RunState::Queued);
    world.go(&first, json!(1)).await;
    world.events_until(&second, waiting).await;
}

#[tokio::test]
async fn a_run_in_memory_waits_in_memory() {
    let world = World::restful().await;
    let fleeting = StartRunRequest {
        options: Some(RunOptions {
            durability: common::Durability::Memory.into(),
            ..RunOptions::default()
        }),
        ..of_definition(&go(), json!({}))
    };
    let fleeting = world.begin(fleeting).await.run_id;
    let durable = world.begin(of_definition(&go(), json!({}))).await.run_id;
    while world.service.runs_in_memory() > 1 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for run in [fleeting, durable] {
        world.go(&run, json!(1)).await;
        assert_eq!(result(&world.outcome(&run).await), json!({"v": 1}));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn w38_no_signal_is_lost_at_the_moment_of_leaving() {
    let world = World::restful().await;
    let run = world.begin(of_definition(&adding(TIMES), json!({}))).await;
    let signals = async {
        for payload in 1..=TIMES {
            world.go(&run.run_id, json!(payload)).await;
            // The next one meets the run while it wakes, waits, is about to leave, or has left.
            let microseconds = fastrand::u64(0..3_000);
            tokio::time::sleep(Duration::from_micros(microseconds)).await;
        }
    };
    let pauses = async {
        for _ in 0..TIMES / 5 {
            world.pause(&run.run_id).await.unwrap();
            world.resume(&run.run_id).await.unwrap();
            let microseconds = fastrand::u64(0..6_000);
            tokio::time::sleep(Duration::from_micros(microseconds)).await;
        }
    };
    // A watch from before the first rest sees all events.
    let (outcome, ..) = tokio::join!(world.outcome(&run.run_id), signals, async {
        pauses.await;
    });
    let sum = (TIMES * (TIMES + 1) / 2) as f64;
    assert_eq!(result(&outcome)["sum"].as_f64(), Some(sum));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn w38_whatever_comes_at_the_moment_of_leaving_ends_every_run() {
    let world = World::restful().await;
    let one = async |number: usize| {
        let definition = match number % 3 {
            0 => timer(fastrand::f64() * 0.01),
            _ => go(),
        };
        let timeout = Duration::from_micros(fastrand::u64(10_000..40_000));
        let timeout = match number % 3 {
            1 => prost_types::Duration::try_from(timeout).ok(),
            _ => None,
        };
        let request = StartRunRequest {
            options: Some(RunOptions {
                timeout,
                ..RunOptions::default()
            }),
            ..of_definition(&definition, json!({}))
        };
        let run = world.begin(request).await.run_id;
        if number % 3 == 2 {
            let microseconds = fastrand::u64(0..5_000);
            tokio::time::sleep(Duration::from_micros(microseconds)).await;
            assert_eq!(world.cancel(&run).await, RunState::Cancelled);
        }
        let expected = [RunState::Succeeded, RunState::Failed, RunState::Cancelled];
        let outcome = world.outcome(&run).await;
        assert_eq!(outcome.state(), expected[number % 3], "{outcome:?}");
    };
    for round in 0..TIMES / 10 {
        let runs = (0..10).map(|number| one(round * 10 + number));
        futures::future::join_all(runs).await;
    }
    world.until_out_of_memory().await;
}
