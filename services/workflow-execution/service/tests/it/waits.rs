//! Nodes that wait for a time, a signal or a person.

use contracts::tavern::common::v1::run_event::Kind;
use contracts::tavern::common::v1::{ErrorReason, RunState, Wait, WaitKind};
use contracts::tavern::run::v1::{
    AnswerWaitRequest, CancelRunRequest, ListRunsRequest, ListWaitsRequest, PauseRunRequest,
    ResumeRunRequest, SignalRunRequest,
};
use contracts::tavern::workflow::v1::ValidateWorkflowRequest;
use serde_json::{Value, json};
use tonic::{Code, Status};

use crate::support::*;

const DAY: u64 = 24 * 60 * 60;

/// One node of a type, whose outputs are the outputs of the run.
fn alone(full_type: &str, config: Value, outputs: &[&str]) -> Value {
    let edges = outputs.iter().map(|key| edge("w", key, "out", key));
    let interface = outputs
        .iter()
        .map(|key| ((*key).to_owned(), json!({"dataFlowType": "WILDCARD"})));
    json!({
        "nodes": [
            {"id": "w", "type": full_type, "configValues": config},
            {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": edges.collect::<Vec<_>>(),
        "interfaceOutputs": serde_json::Map::from_iter(interface),
    })
}

fn timer(config: Value) -> Value {
    alone("core:Timer", config, &["due"])
}

/// Waits for the signal `go`, whose payload is an object with a number `n`.
fn go(further: Value) -> Value {
    let mut config = json!({
        "name": "go",
        "schema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
    });
    let further = further.as_object().unwrap().clone();
    config.as_object_mut().unwrap().extend(further);
    alone("core:WaitSignal", config, &["payload", "timed_out"])
}

fn question(further: Value) -> Value {
    let mut config =
        json!({"title": "Publish?", "choices": ["yes", {"value": "no", "label": "No!"}]});
    let further = further.as_object().unwrap().clone();
    config.as_object_mut().unwrap().extend(further);
    let outputs = ["answer", "choice", "answered_by", "expired"];
    alone("core:HumanInput", config, &outputs)
}

fn waiting(kind: &Kind) -> bool {
    matches!(kind, Kind::NodeWaiting(_))
}

impl World {
    /// Starts a run and waits until a node of it waits.
    async fn start_waiting(&self, definition: &Value) -> String {
        let run = self.start(definition, json!({})).await;
        self.events_until(&run.run_id, waiting).await;
        run.run_id
    }

    async fn signal(&self, run_id: &str, payload: Value, id: &str) -> Result<bool, Status> {
        let request = SignalRunRequest {
            run_id: run_id.to_owned(),
            name: "go".into(),
            payload_json: payload.to_string(),
            signal_id: id.to_owned(),
        };
        let sent = self.runs.clone().signal_run(request).await?;
        Ok(sent.into_inner().replayed)
    }

    async fn answer(&self, run_id: &str, wait_id: &str, answer: Value) -> Result<bool, Status> {
        let request = AnswerWaitRequest {
            run_id: run_id.to_owned(),
            wait_id: wait_id.to_owned(),
            answer_json: answer.to_string(),
            answered_by: "ada".into(),
            request_id: "once".into(),
        };
        let answered = self.runs.clone().answer_wait(request).await?;
        Ok(answered.into_inner().replayed)
    }

    /// Waits until a run is listed in a state.
    async fn until_in(&self, state: RunState, run_id: &str) {
        let request = ListRunsRequest {
            state: state.into(),
            ..ListRunsRequest::default()
        };
        loop {
            let page = self.runs.clone().list_runs(request.clone()).await;
            let runs = page.unwrap().into_inner().runs;
            if runs.iter().any(|run| run.run_id == run_id) {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    async fn waits(&self, run_id: &str) -> Vec<Wait> {
        let request = ListWaitsRequest {
            run_id: run_id.to_owned(),
            ..ListWaitsRequest::default()
        };
        let page = self.runs.clone().list_waits(request).await;
        page.unwrap().into_inner().waits
    }
}

fn reason(answer: Result<bool, Status>) -> Option<ErrorReason> {
    grpc_kit::reason(&answer.unwrap_err())
}

fn fields(answer: Result<bool, Status>) -> Vec<String> {
    let violations = grpc_kit::failure::violations(&answer.unwrap_err());
    violations.into_iter().map(|(field, _)| field).collect()
}

#[tokio::test]
async fn a_timer_passes_its_value_on_when_its_time_has_come() {
    let world = World::new().await;
    let definition = json!({
        "nodes": [
            {"id": "t", "type": "core:Timer", "inputValues": {"value": [1], "duration": 0.01}},
            {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": [edge("t", "value", "out", "v")],
        "interfaceOutputs": {"v": {"dataFlowType": "WILDCARD"}},
    });
    let run = world.start(&definition, json!({})).await;
    let events = world.events(&run.run_id).await;
    assert_eq!(result(&world.outcome(&run.run_id).await), json!({"v": [1]}));
    let words = words(&events);
    let expected = [
        "run started",
        "t waiting",
        "t woken: due",
        "t succeeded",
        "out succeeded",
        "run finished",
    ];
    assert_eq!(words, expected);
    let past = timer(json!({"until": "2020-02-03T04:05:06+01:00"}));
    let expected = json!({"due": "2020-02-03T03:05:06Z"});
    assert_eq!(result(&world.run(&past, json!({})).await), expected);
}

#[tokio::test]
async fn w39_a_timer_keeps_its_time_over_a_restart_and_is_not_early() {
    let world = World::new().await;
    let run = world.start_waiting(&timer(json!({"duration": "2d"}))).await;
    let [before] = &world.waits(&run).await[..] else {
        panic!("one node waits");
    };
    assert_eq!(before.kind(), WaitKind::Timer);
    world.clock.advance(DAY);
    let world = world.restart().await;
    let listed = world.waits(&run).await;
    assert_eq!(listed.first().map(|wait| wait.due), Some(before.due));
    world.clock.advance(DAY);
    let world = world.restart().await;
    let due = before.due.unwrap().to_string();
    assert_eq!(result(&world.outcome(&run).await), json!({"due": due}));
    let words = words(&world.events(&run).await);
    assert_eq!(words.iter().filter(|word| *word == "w waiting").count(), 1);
}

#[tokio::test]
async fn w40_a_signal_wakes_the_oldest_wait_and_is_refused_where_it_does_not_fit() {
    let world = World::new().await;
    let run = world.start_waiting(&go(json!({}))).await;
    assert_eq!(
        fields(world.signal(&run, json!({"n": "x"}), "").await),
        ["payload_json/n"]
    );
    let other = SignalRunRequest {
        run_id: run.clone(),
        name: "goo".into(),
        ..SignalRunRequest::default()
    };
    let status = world.runs.clone().signal_run(other).await.unwrap_err();
    let expected = "is not the name of a signal that the run waits for; did you mean `go`?";
    assert_eq!(
        grpc_kit::failure::violations(&status),
        [("name".to_owned(), expected.to_owned())]
    );
    assert!(!world.signal(&run, json!({"n": 7}), "a").await.unwrap());
    let outcome = world.outcome(&run).await;
    assert_eq!(
        result(&outcome),
        json!({"payload": {"n": 7}, "timed_out": false})
    );
    let late = world.signal(&run, json!({"n": 8}), "b").await;
    assert_eq!(reason(late), Some(ErrorReason::RunFinished));
    let nowhere = world
        .signal("flow_00000000000000000000000000000000", json!({}), "")
        .await;
    assert_eq!(reason(nowhere), Some(ErrorReason::RunNotFound));
}

#[tokio::test]
async fn w40_signals_are_kept_in_order_until_a_node_waits_and_repeats_change_nothing() {
    let world = World::new().await;
    let definition = json!({
        "nodes": [
            tool("t", "wait"),
            {"id": "a", "type": "core:WaitSignal", "configValues": {"name": "go"}},
            {"id": "b", "type": "core:WaitSignal", "configValues": {"name": "go"}},
            {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": [edge("t", "status", "a", "value"), edge("a", "value", "b", "value"),
            edge("a", "payload", "out", "a"), edge("b", "payload", "out", "b")],
        "interfaceOutputs": {"a": {"dataFlowType": "WILDCARD"}, "b": {"dataFlowType": "WILDCARD"}},
    });
    let run = world.start(&definition, json!({})).await.run_id;
    world
        .events_until(&run, |kind| matches!(kind, Kind::CallDispatched(_)))
        .await;
    assert!(!world.signal(&run, json!(1), "first").await.unwrap());
    assert!(world.signal(&run, json!(1), "first").await.unwrap());
    let world = world.restart().await;
    assert!(world.signal(&run, json!(1), "first").await.unwrap());
    let reused = world.signal(&run, json!(2), "first").await;
    assert_eq!(reason(reused), Some(ErrorReason::RequestIdReused));
    assert!(!world.signal(&run, json!(2), "second").await.unwrap());
    world.registry.release();
    let outcome = world.outcome(&run).await;
    assert_eq!(result(&outcome), json!({"a": 1, "b": 2}));
}

/// Starts a run that waits for the signal `go` once the call of a tool has been released.
async fn start_wait_behind_a_call(world: &World) -> String {
    let definition = json!({
        "nodes": [
            tool("t", "wait"),
            {"id": "a", "type": "core:WaitSignal", "configValues": {"name": "go"}},
        ],
        "edges": [edge("t", "status", "a", "value")],
    });
    world.start(&definition, json!({})).await.run_id
}

#[tokio::test]
async fn w8_signals_that_no_node_consumed_are_counted_in_the_outcome() {
    let world = World::new().await;
    let run = start_wait_behind_a_call(&world).await;
    for payload in 0..3 {
        world.signal(&run, json!(payload), "").await.unwrap();
    }
    let world = world.restart().await;
    world.registry.release();
    let outcome = world.outcome(&run).await;
    let left = outcome.unconsumed_signals.iter();
    let left: Vec<_> = left.map(|left| (left.name.as_str(), left.count)).collect();
    assert_eq!(left, [("go", 2)]);
    let late = world.signal(&run, json!(3), "").await;
    assert_eq!(reason(late), Some(ErrorReason::RunFinished));
}

#[tokio::test]
async fn w40_a_run_keeps_at_most_a_thousand_signals() {
    let world = World::new().await;
    let run = start_wait_behind_a_call(&world).await;
    let sent = (0..1_000).map(|n| world.signal(&run, json!(n), ""));
    futures::future::try_join_all(sent).await.unwrap();
    let status = world.signal(&run, json!(0), "").await.unwrap_err();
    assert_eq!(
        (status.code(), grpc_kit::reason(&status)),
        (Code::ResourceExhausted, Some(ErrorReason::LimitExceeded))
    );
}

#[tokio::test]
async fn a_signal_that_does_not_arrive_in_time_fails_its_node_or_gives_the_default() {
    let world = World::new().await;
    let default = go(json!({"timeout": 0.01, "onTimeout": "default", "default": {"n": 0}}));
    assert_eq!(
        result(&world.run(&default, json!({})).await),
        json!({"payload": {"n": 0}, "timed_out": true})
    );
    let failed = world.run(&go(json!({"timeout": 0.01})), json!({})).await;
    assert_eq!(failed.error.unwrap().code, "signal_timeout");
}

#[tokio::test]
async fn w41_the_first_valid_answer_wins_and_an_invalid_one_changes_nothing() {
    let world = World::new().await;
    let run = world
        .start_waiting(&question(json!({"assignees": ["role:editor"]})))
        .await;
    let [wait] = &world.waits(&run).await[..] else {
        panic!("one node waits");
    };
    let labels: Vec<&str> = wait.choices.iter().map(|choice| &*choice.label).collect();
    assert_eq!(
        (wait.name.as_str(), labels),
        ("Publish?", vec!["yes", "No!"])
    );
    assert_eq!(wait.assignees, ["role:editor"]);
    assert_eq!(
        fields(world.answer(&run, &wait.wait_id, json!("perhaps")).await),
        ["answer_json"]
    );
    let elsewhere = world.answer(&run, "another", json!("yes")).await;
    assert_eq!(reason(elsewhere), Some(ErrorReason::NotWaiting));
    assert!(
        !world
            .answer(&run, &wait.wait_id, json!("no"))
            .await
            .unwrap()
    );
    let outcome = world.outcome(&run).await;
    assert_eq!(
        result(&outcome),
        json!({"answer": "no", "choice": "no", "answered_by": "ada", "expired": false})
    );
    assert!(world.waits(&run).await.is_empty());
}

#[tokio::test]
async fn w41_beside_choices_a_form_accepts_other_answers() {
    let world = World::new().await;
    let other = json!({"form": {"type": "string", "minLength": 3}});
    let run = world.start_waiting(&question(other)).await;
    let wait_id = world.waits(&run).await[0].wait_id.clone();
    let short = world.answer(&run, &wait_id, json!("ok")).await;
    assert_eq!(fields(short), ["answer_json"]);
    world.answer(&run, &wait_id, json!("later")).await.unwrap();
    assert_eq!(
        result(&world.outcome(&run).await),
        json!({"answer": "later", "choice": "", "answered_by": "ada", "expired": false})
    );
}

#[tokio::test]
async fn w41_a_question_survives_a_restart_and_its_answer_has_to_fit_the_form() {
    let world = World::new().await;
    let form = json!({"type": "object", "properties": {"age": {"type": "integer"}}});
    let config = json!({"title": "How old?", "form": form, "expiry": "7d"});
    let definition = alone("core:HumanInput", config, &["answer", "choice"]);
    let run = world.start_waiting(&definition).await;
    let world = world.restart().await;
    let wait_id = world.waits(&run).await[0].wait_id.clone();
    assert_eq!(
        fields(world.answer(&run, &wait_id, json!({"age": "x"})).await),
        ["answer_json/age"]
    );
    world
        .answer(&run, &wait_id, json!({"age": 7}))
        .await
        .unwrap();
    let outcome = world.outcome(&run).await;
    assert_eq!(
        result(&outcome),
        json!({"answer": {"age": 7}, "choice": ""})
    );
}

#[tokio::test]
async fn w41_a_question_that_expires_fails_its_node_or_gives_the_default() {
    let world = World::new().await;
    let default = question(json!({"expiry": 0.01, "onExpiry": "default", "default": "no"}));
    assert_eq!(
        result(&world.run(&default, json!({})).await),
        json!({"answer": "no", "choice": "no", "answered_by": "", "expired": true})
    );
    let failed = world
        .run(&question(json!({"expiry": 0.01})), json!({}))
        .await;
    assert_eq!(failed.error.unwrap().code, "expired");
}

#[tokio::test]
async fn waits_hold_no_place_of_the_effects() {
    let world = World::with(|settings| {
        settings.max_effects_per_run = 1;
        settings.max_effects = 1;
    })
    .await;
    let signal =
        |id: &str| json!({"id": id, "type": "core:WaitSignal", "configValues": {"name": "go"}});
    let definition = json!({"nodes": [signal("a"), signal("b"), tool("t", "echo")], "edges": []});
    let run = world.start(&definition, json!({})).await.run_id;
    world
        .events_until(&run, |kind| matches!(kind, Kind::CallSettled(_)))
        .await;
    world.signal(&run, json!(1), "").await.unwrap();
    world.signal(&run, json!(2), "").await.unwrap();
    assert_eq!(world.outcome(&run).await.state(), RunState::Succeeded);
}

#[tokio::test]
async fn each_iteration_of_a_loop_waits_by_itself() {
    let world = World::new().await;
    let definition = json!({
        "nodes": [
            {"id": "loop", "type": "core:LoopZone",
             "configValues": {"variables": [{"key": "sum", "dataFlowType": "FLOAT", "default": 0}]},
             "inputValues": {"count": 3}},
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
    });
    let run = world.start_waiting(&definition).await;
    world.signal(&run, json!(1), "").await.unwrap();
    world
        .events_until(&run, |kind| match kind {
            Kind::NodeWaiting(waiting) => waiting.wait.as_ref().unwrap().node_id == "loop#1/s",
            _ => false,
        })
        .await;
    let world = world.restart().await;
    world.signal(&run, json!(20), "").await.unwrap();
    world.signal(&run, json!(300), "").await.unwrap();
    assert_eq!(result(&world.outcome(&run).await), json!({"sum": 321}));
}

#[tokio::test]
async fn what_follows_a_wait_starts_when_a_paused_run_is_resumed() {
    let world = World::new().await;
    let definition = json!({
        "nodes": [
            {"id": "s", "type": "core:WaitSignal", "configValues": {"name": "go"}},
            tool("t", "echo"),
        ],
        "edges": [edge("s", "payload", "t", "x")],
    });
    let run = world.start_waiting(&definition).await;
    let pause = PauseRunRequest {
        run_id: run.clone(),
        reason: String::new(),
    };
    world.runs.clone().pause_run(pause).await.unwrap();
    world.signal(&run, json!(1), "").await.unwrap();
    let resume = ResumeRunRequest {
        run_id: run.clone(),
    };
    world.runs.clone().resume_run(resume).await.unwrap();
    let words = words(&world.events(&run).await);
    let place = |word: &str| words.iter().position(|found| found == word).unwrap();
    assert!(place("run resumed") < place("t started"), "{words:?}");
}

#[tokio::test]
async fn w8_a_run_of_which_nothing_is_under_way_but_waits_is_waiting() {
    let world = World::with(|settings| settings.max_active_runs = 1).await;
    let definition = json!({
        "nodes": [
            {"id": "s", "type": "core:WaitSignal", "configValues": {"name": "go"}},
            tool("t", "wait"),
        ],
        "edges": [edge("s", "payload", "t", "x")],
    });
    let run = world.start_waiting(&definition).await;
    world.until_in(RunState::Waiting, &run).await;
    // It holds no place among the runs that continue.
    let other = world.start_waiting(&definition).await;
    world.until_in(RunState::Waiting, &other).await;
    let pause = PauseRunRequest {
        run_id: run.clone(),
        reason: String::new(),
    };
    world.runs.clone().pause_run(pause).await.unwrap();
    world.until_in(RunState::Paused, &run).await;
    let resume = ResumeRunRequest {
        run_id: run.clone(),
    };
    let resumed = world.runs.clone().resume_run(resume).await.unwrap();
    let resumed = resumed.into_inner().run.unwrap();
    assert_eq!(resumed.state(), RunState::Waiting);
    world.signal(&run, json!(1), "").await.unwrap();
    world
        .events_until(&run, |kind| matches!(kind, Kind::CallDispatched(_)))
        .await;
    world.until_in(RunState::Running, &run).await;
    world.registry.release();
    assert_eq!(world.outcome(&run).await.state(), RunState::Succeeded);
}

#[tokio::test]
async fn a_delivery_is_awaited() {
    let world = World::new().await;
    let request = of_workflow("await_delivery", json!({"parcel": "7"}));
    let run = world.begin(request).await.run_id;
    let signal = SignalRunRequest {
        run_id: run.clone(),
        name: "delivered".into(),
        payload_json: json!({"place": "door"}).to_string(),
        signal_id: String::new(),
    };
    world.runs.clone().signal_run(signal).await.unwrap();
    assert_eq!(
        result(&world.outcome(&run).await),
        json!({"parcel": "7", "delivery": {"place": "door"}, "lost": false})
    );
}

#[tokio::test]
async fn everything_that_is_wrong_with_the_settings_of_waits_is_named() {
    let world = World::new().await;
    let node = |full_type: &str, config: Value| json!({"id": full_type, "type": full_type, "configValues": config});
    let definition = json!({"nodes": [
        node("core:Timer", json!({"duration": "soon", "until": "tomorrow"})),
        node("core:WaitSignal", json!({"schema": {"type": "integer"}, "timeout": -1,
            "onTimeout": "default", "default": "x", "execution": {"timeout": 5}})),
        node("core:HumanInput", json!({"title": "", "form": {"type": "object"}, "choices": ["a", "a"],
            "assignees": [7], "onExpiry": "ignore"})),
    ]});
    let request = ValidateWorkflowRequest {
        definition_json: definition.to_string(),
        ..ValidateWorkflowRequest::default()
    };
    let checked = world.client.clone().validate_workflow(request).await;
    let violations = checked.unwrap().into_inner().violations;
    let mut found: Vec<&str> = violations.iter().map(|found| &*found.pointer).collect();
    found.sort_unstable();
    found.dedup();
    let expected = [
        "/nodes/0/configValues/duration",
        "/nodes/0/configValues/until",
        "/nodes/1/configValues/default",
        "/nodes/1/configValues/execution/timeout",
        "/nodes/1/configValues/name",
        "/nodes/1/configValues/timeout",
        "/nodes/2/configValues/assignees",
        "/nodes/2/configValues/choices",
        "/nodes/2/configValues/onExpiry",
        "/nodes/2/configValues/title",
    ];
    assert_eq!(found, expected);
}

#[tokio::test]
async fn a_run_that_waits_can_be_cancelled() {
    let world = World::new().await;
    let run = world.start_waiting(&question(json!({}))).await;
    let request = CancelRunRequest {
        run_id: run,
        reason: String::new(),
    };
    let cancelled = world.runs.clone().cancel_run(request).await.unwrap();
    let run = cancelled.into_inner().run.unwrap();
    assert_eq!(run.state(), RunState::Cancelled);
}

#[tokio::test]
async fn w42_a_run_that_can_wait_has_thirty_days() {
    let world = World::new().await;
    let seconds = |run: &contracts::tavern::common::v1::Run| {
        run.deadline.unwrap().seconds - run.create_time.unwrap().seconds
    };
    let waits = world.start(&question(json!({})), json!({})).await;
    assert_eq!(seconds(&waits), 30 * DAY as i64);
    let acts = json!({"nodes": [tool("t", "wait")]});
    let acts = world.start(&acts, json!({})).await;
    assert_eq!(seconds(&acts), 600);
}
