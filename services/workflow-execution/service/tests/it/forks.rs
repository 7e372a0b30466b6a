//! Forks, over the wire (rule W48).

use contracts::tavern::common::v1::run_event::Kind;
use contracts::tavern::common::v1::{ErrorReason, NodeFinished};
use contracts::tavern::run::v1::CancelRunRequest;
use contracts::tavern::workflow::v1::{ForkEdit, ForkPlan, ForkRunRequest, ForkRunResponse};
use serde_json::{Value, json};
use tonic::Status;

use crate::support::*;

/// Two branches: a script with `a`, and one with `b` before a tool.
fn branches(tool_id: &str) -> Value {
    json!({
        "nodes": [
            {"id": "in", "type": "core:GroupInput"},
            python("one", "give(inputs['n'] + 1)\n"),
            python("two", "give(inputs['n'] + 2)\n"),
            tool("act", tool_id),
            {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": [
            edge("in", "a", "one", "n"),
            edge("in", "b", "two", "n"),
            edge("two", "result", "act", "n"),
            edge("one", "result", "out", "one"),
            edge("act", "result", "out", "act"),
        ],
        "interfaceInputs": {"a": {"dataFlowType": "INTEGER"}, "b": {"dataFlowType": "INTEGER"}},
        "interfaceOutputs": {"one": {"dataFlowType": "INTEGER"}, "act": {"dataFlowType": "WILDCARD"}},
    })
}

fn fork(run_id: &str, edits: &[(&str, &str)]) -> ForkRunRequest {
    let edit = |(path, value): &(&str, &str)| ForkEdit {
        path: (*path).to_owned(),
        value_json: (*value).to_owned(),
    };
    ForkRunRequest {
        run_id: run_id.to_owned(),
        edits: edits.iter().map(edit).collect(),
        ..ForkRunRequest::default()
    }
}

impl World {
    /// Runs the two branches to their end.
    async fn source(&self, tool_id: &str) -> String {
        let run = self
            .start(&branches(tool_id), json!({"a": 1, "b": 1}))
            .await;
        self.outcome(&run.run_id).await;
        run.run_id
    }

    async fn fork(&self, request: ForkRunRequest) -> Result<ForkRunResponse, Status> {
        let forked = self.client.clone().fork_run(request).await;
        forked.map(tonic::Response::into_inner)
    }

    async fn plan(&self, request: ForkRunRequest) -> ForkPlan {
        let request = ForkRunRequest {
            validate_only: true,
            ..request
        };
        let planned = self.fork(request).await.unwrap();
        assert_eq!(planned.run, None);
        planned.plan.unwrap()
    }

    /// Returns the nodes that a run took over from another.
    async fn taken_over(&self, run_id: &str) -> Vec<(String, String)> {
        let events = self.events(run_id).await.into_iter();
        let finished = events.filter_map(|event| match event.kind {
            Some(Kind::NodeFinished(node)) => Some(node),
            _ => None,
        });
        let taken = |node: NodeFinished| (node.node_id, node.taken_from_run_id);
        finished
            .map(taken)
            .filter(|(_, from)| !from.is_empty())
            .collect()
    }
}

#[tokio::test]
async fn w48_what_no_edit_reaches_is_taken_over_and_the_rest_done_again() {
    let world = World::new().await;
    let source = world.source("echo").await;
    let request = fork(&source, &[("/inputs/b", "5")]);
    let plan = world.plan(request.clone()).await;
    assert_eq!(
        (plan.reused, plan.redone),
        (texts(&["in", "one"]), texts(&["two", "act", "out"]))
    );
    let effect = &plan.effects_repeated[0];
    assert_eq!(
        (
            effect.path.as_str(),
            effect.tool_id.as_str(),
            effect.harmless
        ),
        ("act", "echo", true)
    );
    assert_eq!(plan.effects_digest, "");
    assert_eq!(world.sandbox.started(), 2, "a plan starts nothing");

    let run_id = world.fork(request).await.unwrap().run.unwrap().run_id;
    let outcome = world.outcome(&run_id).await;
    assert_eq!(result(&outcome), json!({"one": 2, "act": {"n": 7}}));
    assert_eq!(world.sandbox.started(), 3);
    assert_eq!(
        world.taken_over(&run_id).await,
        [("one".to_owned(), source)]
    );
    let asked = world.registry.asked();
    assert_ne!(asked[0].effect_id, asked[1].effect_id);
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[tokio::test]
async fn w48_effects_are_repeated_only_once_their_digest_is_accepted() {
    let world = World::new().await;
    let source = world.source("says").await;
    let request = fork(&source, &[("/inputs/b", "5")]);
    let digest = world.plan(request.clone()).await.effects_digest;
    assert_eq!(digest.len(), 64);
    let refused = world.fork(request.clone()).await.unwrap_err();
    assert_eq!(
        grpc_kit::reason(&refused),
        Some(ErrorReason::EffectsNotAccepted)
    );
    assert_eq!(
        grpc_kit::failure::metadata(&refused)["effects_digest"],
        digest
    );
    assert_eq!(world.registry.asked().len(), 1);
    let accepting = ForkRunRequest {
        accept_effects: digest,
        ..request
    };
    let run_id = world.fork(accepting).await.unwrap().run.unwrap().run_id;
    world.outcome(&run_id).await;
    assert_eq!(world.registry.asked().len(), 2);
    let untouched = world.plan(fork(&source, &[("/inputs/a", "5")])).await;
    assert_eq!(untouched.effects_repeated, []);
}

#[tokio::test]
async fn w48_settings_and_values_of_nodes_are_edited() {
    let world = World::new().await;
    let source = world.source("echo").await;
    let code = python("one", "give(inputs['n'] + 10)\n")["inputValues"]["code"].to_string();
    let edits = [("/nodes/one/inputs/code", code.as_str())];
    let forked = world.fork(fork(&source, &edits)).await.unwrap();
    assert_eq!(forked.plan.unwrap().redone, ["one", "out"]);
    let outcome = world.outcome(&forked.run.unwrap().run_id).await;
    assert_eq!(result(&outcome), json!({"one": 11, "act": {"n": 3}}));
    let edits = [("/nodes/one/config/language", "\"python\"")];
    assert_eq!(
        world.plan(fork(&source, &edits)).await.redone,
        ["one", "out"]
    );
}

#[tokio::test]
async fn w48_a_fork_of_a_fork_and_a_repeated_request_are_what_they_were() {
    let world = World::new().await;
    let source = world.source("echo").await;
    let request = ForkRunRequest {
        request_id: "again".into(),
        ..fork(&source, &[("/inputs/b", "5")])
    };
    let first = world.fork(request.clone()).await.unwrap();
    let second = world.fork(request).await.unwrap();
    let run_id = first.run.unwrap().run_id;
    assert_eq!(
        (second.run.unwrap().run_id, second.replayed),
        (run_id.clone(), true)
    );
    world.outcome(&run_id).await;
    assert_eq!(
        world
            .plan(fork(&run_id, &[("/inputs/a", "1")]))
            .await
            .redone,
        [] as [&str; 0]
    );
}

#[tokio::test]
async fn w48_a_fork_of_a_cancelled_run_continues_after_a_restart() {
    let world = World::new().await;
    let run = world
        .start(&branches("wait"), json!({"a": 1, "b": 1}))
        .await;
    let dispatched = |kind: &Kind| matches!(kind, Kind::CallDispatched(_));
    let one_ended = |kind: &Kind| matches!(kind, Kind::NodeFinished(node) if node.node_id == "one");
    world.events_until(&run.run_id, dispatched).await;
    world.events_until(&run.run_id, one_ended).await;
    let early = world.fork(fork(&run.run_id, &[])).await.unwrap_err();
    assert_eq!(grpc_kit::reason(&early), Some(ErrorReason::RunNotFinished));
    let cancel = CancelRunRequest {
        run_id: run.run_id.clone(),
        ..CancelRunRequest::default()
    };
    world.runs.clone().cancel_run(cancel).await.unwrap();
    world.outcome(&run.run_id).await;
    let ran = world.sandbox.started();

    let plan = world.plan(fork(&run.run_id, &[])).await;
    assert_eq!(plan.redone, ["act", "out"]);
    let accepting = ForkRunRequest {
        accept_effects: plan.effects_digest,
        ..fork(&run.run_id, &[])
    };
    let run_id = world.fork(accepting).await.unwrap().run.unwrap().run_id;
    world.events_until(&run_id, dispatched).await;
    let world = world.restart().await;
    world.registry.release();
    let outcome = world.outcome(&run_id).await;
    assert_eq!(result(&outcome)["one"], 2);
    assert_eq!(
        world.sandbox.started(),
        ran,
        "what was taken over did not run again"
    );
}

#[tokio::test]
async fn edits_that_fit_nothing_are_named() {
    let world = World::new().await;
    let source = world.source("echo").await;
    for (path, value, field) in [
        ("/inputs/c", "1", "edits[0].path"),
        ("/inputs/a", "{", "edits[0].value_json"),
        ("/nodes/none/inputs/code", "1", "edits[0].path"),
        ("/nodes/one/inputs/n", "1", "edits[0].path"),
        ("/nodes/one/inputs/none", "1", "edits[0].path"),
        ("inputs/a", "1", "edits[0].path"),
    ] {
        let refused = world
            .fork(fork(&source, &[(path, value)]))
            .await
            .unwrap_err();
        let fields = grpc_kit::violations(&refused).into_iter();
        let fields: Vec<String> = fields.map(|(field, _)| field).collect();
        assert_eq!(fields, [field], "{path}");
    }
}
