//! Results that other nodes reuse, over the wire (rules W45 to W47).

use contracts::tavern::common::v1::run_event::Kind;
use contracts::tavern::common::v1::{
    CacheMiss, NodeCache, NodeFinished, NodeState, ResultPart, ResultPartKind,
};
use contracts::tavern::workflow::v1::{PutWorkflowRequest, ValidateWorkflowRequest};
use serde_json::{Value, json};

use crate::support::*;

/// A script that doubles its input, with `cache` settings.
pub(crate) fn doubling(cache: Value) -> Value {
    let mut script = python("double", "give(inputs['n'] * 2)\n");
    script["configValues"] = json!({"execution": {"cache": cache}});
    json!({
        "nodes": [
            {"id": "in", "type": "core:GroupInput"},
            script,
            {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": [edge("in", "n", "double", "n"), edge("double", "result", "out", "r")],
        "interfaceInputs": {"n": {"dataFlowType": "INTEGER", "required": true}},
        "interfaceOutputs": {"r": {"dataFlowType": "INTEGER"}},
    })
}

impl World {
    pub(crate) async fn put(&self, id: &str, definition: &Value) {
        let request = PutWorkflowRequest {
            workflow_id: id.to_owned(),
            definition_json: definition.to_string(),
            ..PutWorkflowRequest::default()
        };
        self.client.clone().put_workflow(request).await.unwrap();
    }

    /// Runs a stored workflow and returns its run id and the end of node `double`.
    async fn doubled(&self, id: &str, n: i64) -> (String, NodeFinished) {
        let run = self.begin(of_workflow(id, json!({"n": n}))).await;
        let outcome = self.outcome(&run.run_id).await;
        assert_eq!(result(&outcome), json!({"r": 2 * n}));
        let finished = self
            .events(&run.run_id)
            .await
            .into_iter()
            .find_map(|event| match event.kind {
                Some(Kind::NodeFinished(node)) if node.node_id == "double" => Some(node),
                _ => None,
            });
        (run.run_id, finished.unwrap())
    }
}

fn missed(finished: &NodeFinished) -> (CacheMiss, Vec<ResultPart>) {
    assert_eq!(finished.state(), NodeState::Succeeded);
    let cache = finished.cache.clone().unwrap();
    assert_eq!((cache.source_run_id.as_str(), cache.age), ("", None));
    (cache.miss(), cache.changed)
}

#[tokio::test]
async fn w47_a_hit_names_key_source_and_age_and_a_miss_its_cause() {
    let world = World::new().await;
    world.put("d", &doubling(json!({"ttl": "5m"}))).await;
    let (first, finished) = world.doubled("d", 1).await;
    assert_eq!(missed(&finished), (CacheMiss::First, Vec::new()));
    let key = finished.cache.unwrap().key;
    world.clock.advance(60);
    let (_, finished) = world.doubled("d", 1).await;
    assert_eq!(finished.state(), NodeState::Cached);
    let cache = finished.cache.unwrap();
    assert_eq!((cache.key, cache.source_run_id), (key, first));
    assert_eq!(cache.miss, i32::from(CacheMiss::Unspecified));
    assert!(cache.age.unwrap().seconds >= 60);
    assert_eq!(world.sandbox.started(), 1);
    let (_, finished) = world.doubled("d", 2).await;
    let changed = vec![ResultPart {
        kind: ResultPartKind::Input.into(),
        name: "n".to_owned(),
    }];
    assert_eq!(missed(&finished), (CacheMiss::Changed, changed));
    world.clock.advance(300);
    let (_, finished) = world.doubled("d", 1).await;
    assert_eq!(missed(&finished), (CacheMiss::Expired, Vec::new()));
    assert_eq!(world.sandbox.started(), 3);
}

#[tokio::test]
async fn w47_results_survive_a_restart() {
    let world = World::new().await;
    world.put("d", &doubling(json!({"ttl": "5m"}))).await;
    let (first, _) = world.doubled("d", 1).await;
    let world = world.restart().await;
    let (_, finished) = world.doubled("d", 1).await;
    assert_eq!(finished.cache.unwrap().source_run_id, first);
    assert_eq!(world.sandbox.started(), 1);
}

#[tokio::test]
async fn w45_results_stay_in_their_scope() {
    let world = World::new().await;
    for (scope, runs) in [("run", 4), ("workflow", 2), ("tenant", 1)] {
        let before = world.sandbox.started();
        let definition = doubling(json!({"ttl": "5m", "scope": scope}));
        for id in [format!("{scope}-a"), format!("{scope}-b")] {
            world.put(&id, &definition).await;
            world.doubled(&id, 1).await;
            world.doubled(&id, 1).await;
        }
        assert_eq!(world.sandbox.started() - before, runs, "{scope}");
    }
}

#[tokio::test]
async fn w45_a_mode_reads_or_writes_or_both() {
    let world = World::new().await;
    for (mode, runs) in [("read", 2), ("refresh", 2), ("off", 2), ("read_write", 1)] {
        let before = world.sandbox.started();
        let definition = doubling(json!({"ttl": "5m", "mode": mode}));
        world.put(mode, &definition).await;
        world.doubled(mode, 1).await;
        world.doubled(mode, 1).await;
        assert_eq!(world.sandbox.started() - before, runs, "{mode}");
    }
}

#[tokio::test]
async fn w46_failures_are_not_kept() {
    let world = World::new().await;
    let mut definition = doubling(json!({"ttl": "5m"}));
    let fails = python("double", "raise ValueError(inputs['n'])\n");
    definition["nodes"][1]["inputValues"] = fails["inputValues"].clone();
    world.put("f", &definition).await;
    for _ in 0..2 {
        let run = world.begin(of_workflow("f", json!({"n": 1}))).await;
        assert!(world.outcome(&run.run_id).await.error.is_some());
    }
    assert_eq!(world.sandbox.started(), 2);
}

#[tokio::test]
async fn w46_a_node_that_wants_what_another_is_about_to_give_waits_for_it() {
    let world = World::new().await;
    let mut definition = doubling(json!({"ttl": "5m", "scope": "run"}));
    let mut twin = definition["nodes"][1].clone();
    twin["id"] = json!("twin");
    definition["nodes"].as_array_mut().unwrap().push(twin);
    let edges = definition["edges"].as_array_mut().unwrap();
    edges.extend([
        edge("in", "n", "twin", "n"),
        edge("twin", "result", "out", "s"),
    ]);
    definition["interfaceOutputs"]["s"] = json!({"dataFlowType": "INTEGER"});
    let outcome = world.run(&definition, json!({"n": 4})).await;
    assert_eq!(result(&outcome), json!({"r": 8, "s": 8}));
    assert_eq!(world.sandbox.started(), 1);
}

#[tokio::test]
async fn w45_settings_that_cannot_hold_are_violations() {
    let world = World::new().await;
    let violations = async |full_type: &str, cache: Value| -> Vec<(String, String)> {
        let definition = json!({"nodes": [{
            "id": "n", "type": full_type, "inputValues": {"tool_id": "echo", "code": "1"},
            "configValues": {"execution": {"cache": cache}},
        }]});
        let request = ValidateWorkflowRequest {
            definition_json: definition.to_string(),
            ..ValidateWorkflowRequest::default()
        };
        let validated = world.client.clone().validate_workflow(request).await;
        let violations = validated.unwrap().into_inner().violations.into_iter();
        violations
            .map(|found| (found.pointer, found.code))
            .collect()
    };
    let at = |rest: &str, code: &str| {
        let path = format!("/nodes/0/configValues/execution/cache{rest}");
        vec![(path, code.to_owned())]
    };
    assert_eq!(
        violations("core:Script", json!({})).await,
        at("/ttl", "missing")
    );
    assert_eq!(
        violations("core:ExecuteTool", json!({})).await,
        at("/ttl", "missing")
    );
    assert_eq!(
        violations("core:RandomNumber", json!({})).await,
        at("", "not_cacheable")
    );
    assert_eq!(
        violations("core:Script", json!({"ttl": "5m", "scope": "all"})).await,
        at("/scope", "out_of_range")
    );
    assert_eq!(violations("core:Script", json!({"mode": "off"})).await, []);
}

/// Doubles twice, each time with a cache.
fn doubling_twice() -> Value {
    let mut definition = doubling(json!({"ttl": "5m"}));
    let mut second = definition["nodes"][1].clone();
    second["id"] = json!("again");
    definition["nodes"].as_array_mut().unwrap().push(second);
    definition["edges"][1] = edge("again", "result", "out", "r");
    let edges = definition["edges"].as_array_mut().unwrap();
    edges.push(edge("double", "result", "again", "n"));
    definition
}

#[tokio::test]
async fn w49_a_plan_with_inputs_predicts_what_a_run_would_reuse() {
    let world = World::new().await;
    let definition = doubling_twice();
    world.put("d", &definition).await;
    let predict = async |inputs: &str| -> Vec<(String, Option<(String, CacheMiss)>)> {
        let request = ValidateWorkflowRequest {
            definition_json: definition.to_string(),
            inputs_json: inputs.to_owned(),
            workflow_id: "d".to_owned(),
        };
        let validated = world.client.clone().validate_workflow(request).await;
        let forecast = validated.unwrap().into_inner().forecast.unwrap();
        let scripts = forecast.nodes.into_iter();
        let scripts = scripts.filter(|node| node.node_type == "core:Script");
        let known = |cache: NodeCache| (cache.source_run_id.clone(), cache.miss());
        scripts
            .map(|node| (node.node_id, node.cache.map(known)))
            .collect()
    };
    let given = |double: Option<(&str, CacheMiss)>, again: Option<(&str, CacheMiss)>| {
        let owned = |(run, miss): (&str, CacheMiss)| (run.to_owned(), miss);
        vec![
            ("double".to_owned(), double.map(owned)),
            ("again".to_owned(), again.map(owned)),
        ]
    };
    // The input of the second node is known only in a run.
    let first = given(Some(("", CacheMiss::First)), None);
    assert_eq!(predict(r#"{"n": 1}"#).await, first);
    let run = world.begin(of_workflow("d", json!({"n": 1}))).await.run_id;
    world.outcome(&run).await;
    let hit = Some((run.as_str(), CacheMiss::Unspecified));
    assert_eq!(predict(r#"{"n": 1}"#).await, given(hit, hit));
    // Results are found by their inputs: the second node of the run had 2.
    let miss = Some(("", CacheMiss::Changed));
    assert_eq!(predict(r#"{"n": 2}"#).await, given(hit, miss));
    assert_eq!(predict(r#"{"n": 5}"#).await, given(miss, None));
    assert_eq!(predict("").await, given(None, None));
    assert_eq!(world.sandbox.started(), 2, "a plan runs nothing");
}

#[tokio::test]
async fn w49_inputs_that_the_definition_does_not_take_are_named() {
    let world = World::new().await;
    let request = ValidateWorkflowRequest {
        definition_json: doubling_twice().to_string(),
        inputs_json: r#"{"n": "one"}"#.to_owned(),
        ..ValidateWorkflowRequest::default()
    };
    let refused = world.client.clone().validate_workflow(request).await;
    let refused = refused.unwrap_err();
    assert!(refused.message().contains("inputs_json"), "{refused}");
}
