//! Keys, limits per type and priorities (rules W50 and W51).

use contracts::tavern::common::v1::run_event::Kind;
use contracts::tavern::common::v1::{ErrorReason, Run, RunState};
use contracts::tavern::workflow::v1::{
    OnConflict, RunConcurrency, StartRunRequest, ValidateWorkflowRequest,
};
use serde_json::{Value, json};
use tonic::{Code, Status};

use crate::support::*;

/// A node that calls a tool under the settings for its execution.
pub(crate) fn limited(id: &str, tool_id: &str, execution: Value) -> Value {
    let mut node = tool(id, tool_id);
    node["configValues"] = json!({"execution": execution});
    node
}

/// A map over 12 items whose calls may all be in flight together but for their settings.
fn mapping(execution: Value) -> Value {
    let mut act = limited("act", "busy", execution);
    act["parentNode"] = json!("map");
    let items: Vec<u32> = (0..12).collect();
    json!({
        "nodes": [
            {"id": "map", "type": "core:MapList", "configValues": {"concurrency": 12}, "inputValues": {"items": items}},
            {"id": "map_in", "type": "core:ZoneInput", "parentNode": "map"},
            act,
            {"id": "map_out", "type": "core:ZoneOutput", "parentNode": "map"},
            {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": [
            edge("map_in", "item", "act", "n"),
            edge("act", "result", "map_out", "result"),
            edge("map", "succeeded", "out", "succeeded"),
        ],
        "interfaceOutputs": {"succeeded": {"dataFlowType": "INTEGER"}},
    })
}

pub(crate) fn dispatched(kind: &Kind) -> bool {
    matches!(kind, Kind::CallDispatched(_))
}

impl World {
    fn asked_nodes(&self) -> Vec<String> {
        let asked = self.registry.asked().into_iter();
        let node = |effect_id: String| effect_id.split('/').nth(1).unwrap_or_default().to_owned();
        asked.map(|asked| node(asked.effect_id)).collect()
    }

    async fn start_keyed(&self, id: &str, on_conflict: OnConflict) -> Result<Run, Status> {
        let definition = json!({"nodes": [tool(id, "wait")]});
        let request = StartRunRequest {
            concurrency: Some(RunConcurrency {
                key: "order 17".into(),
                on_conflict: on_conflict.into(),
            }),
            ..of_definition(&definition, json!({}))
        };
        let started = self.client.clone().start_run(request).await?;
        Ok(started.into_inner().run.unwrap())
    }
}

#[tokio::test]
async fn w50_a_key_has_as_many_holders_as_its_limit() {
    for (execution, most) in [
        (json!({}), 12),
        (json!({"concurrencyKey": "'one'"}), 1),
        (
            json!({"concurrencyKey": "'some'", "concurrencyLimit": 3}),
            3,
        ),
        (json!({"concurrencyKey": "string(inputs.n % 2)"}), 2),
    ] {
        let world = World::new().await;
        world.registry.keep_busy(most);
        let outcome = world.run(&mapping(execution.clone()), json!({})).await;
        assert_eq!(result(&outcome), json!({"succeeded": 12}));
        assert_eq!(world.registry.most_busy(), most, "{execution}");
    }
}

#[tokio::test]
async fn w50_a_key_holds_across_runs_and_a_queued_node_has_not_started() {
    let world = World::new().await;
    let call = |key: &str| {
        let key = format!("'{key}'");
        json!({"nodes": [limited(key.trim_matches('\''), "wait", json!({"concurrencyKey": key}))]})
    };
    let first = world.start(&call("a"), json!({})).await;
    world.events_until(&first.run_id, dispatched).await;
    let second = world.start(&call("a"), json!({})).await;
    let other = world.start(&call("b"), json!({})).await;
    world.events_until(&other.run_id, dispatched).await;
    // The event is in the log before the registry gets the request.
    world.registry.until_asked(2).await;
    assert_eq!(world.asked_nodes(), ["a", "b"]);
    world.registry.release();
    let words = words(&world.events(&second.run_id).await);
    assert_eq!(words[..3], ["run started", "a started", "a dispatched"]);
}

#[tokio::test]
async fn w50_a_pause_between_attempts_and_a_paused_run_hold_no_permit() {
    let world = World::new().await;
    let execution = json!({"concurrencyKey": "'k'", "retry": {"maxAttempts": 2, "initial": "1h", "on": ["domain"]}});
    let failing = json!({"nodes": [limited("f", "fail", execution)]});
    let failing = world.start(&failing, json!({})).await;
    let retrying = |kind: &Kind| matches!(kind, Kind::NodeRetrying(_));
    world.events_until(&failing.run_id, retrying).await;
    let next = json!({"nodes": [limited("n", "echo", json!({"concurrencyKey": "'k'"}))]});
    let outcome = world.run(&next, json!({})).await;
    assert_eq!(outcome.state(), RunState::Succeeded);
}

#[tokio::test]
async fn w50_a_type_has_as_many_effects_as_its_setting() {
    let world = World::with(|settings| {
        let limits = [("core:ExecuteTool".to_owned(), 2)];
        settings.max_effects_by_type = limits.into();
    })
    .await;
    world.registry.keep_busy(2);
    let outcome = world.run(&mapping(json!({})), json!({})).await;
    assert_eq!(result(&outcome), json!({"succeeded": 12}));
    assert_eq!(world.registry.most_busy(), 2);
}

#[tokio::test]
async fn w51_a_higher_priority_is_first() {
    let world = World::with(|settings| settings.max_effects_per_run = 1).await;
    let call = |id: &str, priority: u32| limited(id, "echo", json!({"priority": priority}));
    let definition = json!({"nodes": [tool("first", "wait"), call("low", 1), call("high", 9), tool("none", "echo")]});
    let request = StartRunRequest {
        priority: 5,
        ..of_definition(&definition, json!({}))
    };
    let run = world.begin(request).await;
    world.events_until(&run.run_id, dispatched).await;
    world.registry.release();
    world.outcome(&run.run_id).await;
    assert_eq!(world.asked_nodes(), ["first", "high", "none", "low"]);
}

#[tokio::test]
async fn w19_the_total_time_counts_the_time_in_the_queue() {
    let world = World::new().await;
    let first = json!({"nodes": [limited("a", "wait", json!({"concurrencyKey": "'k'"}))]});
    let first = world.start(&first, json!({})).await;
    world.events_until(&first.run_id, dispatched).await;
    let late = json!({"concurrencyKey": "'k'", "totalTimeout": "5ms"});
    let late = json!({"nodes": [limited("b", "echo", late)]});
    let outcome = world.run(&late, json!({})).await;
    assert_eq!(outcome.error.unwrap().code, "node_timeout");
    assert_eq!(world.asked_nodes(), ["a"]);
}

#[tokio::test]
async fn w50_a_key_that_is_no_text_fails_its_node() {
    let world = World::new().await;
    let definition = json!({"nodes": [limited("a", "echo", json!({"concurrencyKey": "7"}))]});
    let outcome = world.run(&definition, json!({})).await;
    assert_eq!(outcome.error.unwrap().code, "condition_failed");
}

#[tokio::test]
async fn wrong_settings_are_violations() {
    let world = World::new().await;
    let execution = json!({"concurrencyKey": "input.n", "concurrencyLimit": 0, "priority": 10});
    let definition = json!({"nodes": [
        limited("a", "echo", execution), limited("b", "echo", json!({"concurrencyLimit": 2})),
    ]});
    let request = ValidateWorkflowRequest {
        definition_json: definition.to_string(),
        ..ValidateWorkflowRequest::default()
    };
    let checked = world.client.clone().validate_workflow(request).await;
    let violations = checked.unwrap().into_inner().violations.into_iter();
    let mut fields: Vec<String> = violations.map(|violation| violation.pointer).collect();
    fields.sort_unstable();
    let at = |node: usize, rest: &str| format!("/nodes/{node}/configValues/execution/{rest}");
    let expected = [
        at(0, "concurrencyKey"),
        at(0, "concurrencyLimit"),
        at(0, "priority"),
        at(1, "concurrencyKey"),
    ];
    assert_eq!(fields, expected);
}

#[tokio::test]
async fn w50_runs_with_the_same_key_follow_each_other_over_a_restart() {
    let world = World::new().await;
    let first = world.start_keyed("a", OnConflict::Queue).await.unwrap();
    world.events_until(&first.run_id, dispatched).await;
    let second = world
        .start_keyed("b", OnConflict::Unspecified)
        .await
        .unwrap();
    assert_eq!(second.state(), RunState::Queued);
    let world = world.restart().await;
    let third = world.start_keyed("c", OnConflict::Queue).await.unwrap();
    assert_eq!(third.state(), RunState::Queued);
    world.registry.release();
    world.events(&third.run_id).await;
    assert_eq!(world.asked_nodes(), ["a", "a", "b", "c"]);
}

#[tokio::test]
async fn w50_a_request_may_refuse_to_wait_for_its_key() {
    let world = World::new().await;
    let first = world.start_keyed("a", OnConflict::Reject).await.unwrap();
    let refused = world
        .start_keyed("b", OnConflict::Reject)
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    let reason = grpc_kit::reason(&refused);
    assert_eq!(reason, Some(ErrorReason::ConcurrencyKeyHeld));
    let named = grpc_kit::failure::metadata(&refused);
    assert_eq!(named.get("run_id"), Some(&first.run_id));
    world.registry.release();
    world.events(&first.run_id).await;
    let third = world.start_keyed("c", OnConflict::Reject).await.unwrap();
    let outcome = world.outcome(&third.run_id).await;
    assert_eq!(outcome.state(), RunState::Succeeded);
}

#[tokio::test]
async fn w50_a_request_may_end_the_runs_before_it() {
    let world = World::new().await;
    let first = world.start_keyed("a", OnConflict::Queue).await.unwrap();
    world.events_until(&first.run_id, dispatched).await;
    let second = world.start_keyed("b", OnConflict::Queue).await.unwrap();
    let third = world.start_keyed("c", OnConflict::CancelRunning).await;
    let third = third.unwrap();
    for run in [&first, &second] {
        let outcome = world.outcome(&run.run_id).await;
        assert_eq!(outcome.state(), RunState::Cancelled);
    }
    world.registry.release();
    let outcome = world.outcome(&third.run_id).await;
    assert_eq!(outcome.state(), RunState::Succeeded);
    assert_eq!(world.asked_nodes(), ["a", "c"]);
}
