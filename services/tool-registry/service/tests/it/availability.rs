//! The bounds of a call from the agents above it, and their explanation (rules R501 to R503, W29,
//! G801).

use contracts::tavern::registry::v1::{
    call_service_client::CallServiceClient, tool_registry_service_client::ToolRegistryServiceClient,
};
use contracts::tavern::{
    common::v1::{CallResult, CallStatus, ErrorReason},
    registry::v1::{
        AvailabilityLayer, AvailabilityScope, AvailabilityVerdict, BatchGetToolsRequest,
        ExplainAvailabilityRequest, InvokeCallsRequest, ToolAvailability,
    },
};
use serde_json::{Value, json};
use tonic::{Code, Status};

use crate::{
    fixture::{Fixture, code_of, finish, script_tool, with_effect},
    invocation::{call, invoke, run},
};

const TURN: &str = "turn_0000000000000000000000000000000a";
const FLOW: &str = "flow_0000000000000000000000000000000b";

/// A registry with the tools `read`, `give` and `burn`, of which the agent `gm` has the first two. Its own
/// rules refuse large gifts; a rule of the operator refuses crowns.
async fn fixture() -> Fixture {
    let tools = ["read", "give", "burn"].map(script_tool);
    let file = json!({"rules": [
        {"id": "crowns", "tools": ["give"], "condition": "args.item == 'crown'", "action": "deny"}
    ]});
    let fixture = Fixture::with_approvals(&tools, &file).await;
    let rules = json!([
        {"id": "everything", "action": "allow"},
        {"id": "large", "tools": ["give"], "condition": "args.value > 50", "action": "deny"}
    ]);
    fixture.agents.add("gm", TURN, &["read", "give"], &rules);
    fixture
}

/// Calls a tool below runs.
async fn call_below(fixture: &Fixture, runs: &[&str], tool: &str, arguments: Value) -> CallResult {
    let effect = format!("{tool}-{}-{arguments}", runs.len());
    let calls = CallServiceClient::new(fixture.below(runs));
    let ended = finish(calls, with_effect(&effect, tool, arguments)).await;
    ended.unwrap().1
}

async fn explain(
    fixture: &Fixture,
    tool_ids: &[&str],
    scope: AvailabilityScope,
) -> Result<Vec<ToolAvailability>, Status> {
    let request = ExplainAvailabilityRequest {
        tool_ids: tool_ids.iter().map(|id| (*id).to_owned()).collect(),
        scope: Some(scope),
        ..ExplainAvailabilityRequest::default()
    };
    let mut catalogue = fixture.catalogue.clone();
    let explained = catalogue.explain_availability(request).await?;
    Ok(explained.into_inner().tools)
}

fn of_profile() -> AvailabilityScope {
    AvailabilityScope {
        profile_id: "gm".to_owned(),
        ..AvailabilityScope::default()
    }
}

#[tokio::test]
async fn r501_a_call_of_a_turn_is_bounded_by_the_inventory_as_it_is_explained() {
    let fixture = fixture().await;
    let of_turn = AvailabilityScope {
        run_id: TURN.to_owned(),
        ..AvailabilityScope::default()
    };
    for scope in [of_turn, of_profile()] {
        let explained = explain(&fixture, &["read", "burn"], scope).await.unwrap();
        assert_eq!(explained[0].verdict(), AvailabilityVerdict::Available);
        assert_eq!(explained[0].remedy, "");
        let burn = &explained[1];
        assert_eq!(burn.verdict(), AvailabilityVerdict::ToolNotAvailable);
        assert_eq!(burn.first_blocking(), AvailabilityLayer::Inventory);
        assert_eq!(
            burn.remedy,
            "Add burn to tool_ids_inventory of the profile gm."
        );
        assert_eq!(burn.layers.len(), 6, "{burn:?}");
    }
    let read = call_below(&fixture, &[TURN], "read", json!({})).await;
    assert_eq!(read.status(), CallStatus::Succeeded, "{read:?}");
    let burn = call_below(&fixture, &[TURN], "burn", json!({})).await;
    assert_eq!(burn.status(), CallStatus::Rejected);
    assert_eq!(code_of(&burn), "tool_not_available");
    let handles = call_below(&fixture, &[TURN], "system:list_handles", json!({})).await;
    assert_ne!(
        code_of(&handles),
        "tool_not_available",
        "every agent has it"
    );
    // What a workflow of the agent does is up to its author.
    let inside = call_below(&fixture, &[TURN, FLOW], "burn", json!({})).await;
    assert_eq!(inside.status(), CallStatus::Succeeded, "{inside:?}");
    assert_eq!(fixture.agents.asked(TURN), 1, "a turn keeps its tools");
}

#[tokio::test]
async fn w29_what_a_model_of_a_workflow_may_choose_is_cut_to_the_agents_inventory() {
    let fixture = fixture().await;
    let request = BatchGetToolsRequest {
        tool_ids: vec!["read".into(), "burn".into(), "nothing".into()],
        visible_only: true,
        ..BatchGetToolsRequest::default()
    };
    let mut below = ToolRegistryServiceClient::new(fixture.below(&[TURN, FLOW]));
    let found = below.batch_get_tools(request.clone()).await;
    let found = found.unwrap().into_inner();
    assert_eq!(found.tools.len(), 1);
    assert_eq!(found.hidden_tool_ids, ["burn"]);
    assert_eq!(found.missing_tool_ids, ["nothing"]);
    let mut catalogue = fixture.catalogue.clone();
    let without_agent = catalogue.batch_get_tools(request).await.unwrap();
    assert_eq!(without_agent.into_inner().tools.len(), 2);
}

#[tokio::test]
async fn g801_the_rules_of_each_agent_above_a_call_make_it_stricter_and_never_looser() {
    let fixture = fixture().await;
    for (runs, arguments, code) in [
        (&[TURN][..], json!({"item": "herb", "value": 5}), ""),
        (
            &[TURN],
            json!({"item": "herb", "value": 60}),
            "denied_by_rule",
        ),
        (
            &[TURN, FLOW],
            json!({"item": "herb", "value": 60}),
            "denied_by_rule",
        ),
        (
            &[TURN],
            json!({"item": "crown", "value": 5}),
            "denied_by_rule",
        ),
        (&[], json!({"item": "herb", "value": 60}), ""),
    ] {
        let result = call_below(&fixture, runs, "give", arguments.clone()).await;
        assert_eq!(
            code_of(&result),
            code,
            "{arguments} below {runs:?}: {result:?}"
        );
    }
    let denied = call_below(&fixture, &[TURN], "give", json!({"item": "", "value": 51})).await;
    let message = denied.error.unwrap().message;
    assert!(message.contains("'gm/large'"), "{message}");
    let give = explain(&fixture, &["give"], of_profile()).await.unwrap();
    assert_eq!(
        give[0].then,
        [
            "the rule 'crowns' refuses the call where args.item == 'crown'",
            "the rule 'gm/large' refuses the call where args.value > 50",
        ]
    );
}

#[tokio::test]
async fn calls_of_a_text_for_an_agent_are_bounded_as_those_of_its_turns() {
    let fixture = fixture().await;
    let large = json!({"item": "herb", "value": 60});
    for (profile_id, tool, arguments, status) in [
        ("gm", "give", large.clone(), CallStatus::Rejected),
        ("gm", "burn", json!({}), CallStatus::Rejected),
        ("gm", "read", json!({}), CallStatus::Succeeded),
        ("", "burn", json!({}), CallStatus::Succeeded),
        ("", "give", large, CallStatus::Succeeded),
        ("absent", "read", json!({}), CallStatus::Rejected),
    ] {
        let request = InvokeCallsRequest {
            profile_id: profile_id.to_owned(),
            ..invoke(vec![call(0, tool, arguments)])
        };
        let statuses = run(&fixture, request).await.1;
        assert_eq!(statuses, [status], "{tool} for {profile_id}");
    }
}

#[tokio::test]
async fn a_call_below_a_turn_that_is_not_known_does_not_leave() {
    let fixture = fixture().await;
    let other = "turn_0000000000000000000000000000000c";
    let result = call_below(&fixture, &[other], "read", json!({})).await;
    assert_eq!(result.status(), CallStatus::Rejected);
    assert_eq!(code_of(&result), "agent_unknown");
}

#[tokio::test]
async fn r503_a_workflow_and_its_nodes_are_explained_with_what_helps() {
    let fixture = fixture().await;
    let scope = |node_path: &str| AvailabilityScope {
        workflow_id: "talk".to_owned(),
        node_path: node_path.to_owned(),
        ..AvailabilityScope::default()
    };
    let explained = explain(&fixture, &["read", "give", "burn"], scope("ask")).await;
    let verdicts: Vec<_> = explained
        .unwrap()
        .iter()
        .map(|tool| (tool.verdict(), tool.first_blocking()))
        .collect();
    let available = (
        AvailabilityVerdict::Available,
        AvailabilityLayer::Unspecified,
    );
    let hidden = AvailabilityVerdict::ToolNotAvailable;
    assert_eq!(
        verdicts,
        [available, available, (hidden, AvailabilityLayer::Workflow)]
    );
    let give = explain(&fixture, &["give"], scope("")).await.unwrap();
    assert_eq!(give[0].verdict(), hidden);
    assert!(
        give[0]
            .remedy
            .contains("availableTools.initial of the workflow talk")
    );
}

#[tokio::test]
async fn r502_an_unknown_tool_is_explained_with_near_names_that_the_agent_has() {
    let fixture = fixture().await;
    let anywhere = AvailabilityScope::default();
    let unknown = explain(&fixture, &["bunr"], anywhere).await.unwrap();
    assert_eq!(unknown[0].verdict(), AvailabilityVerdict::UnknownTool);
    assert_eq!(unknown[0].first_blocking(), AvailabilityLayer::Exists);
    assert_eq!(unknown[0].suggestions, ["burn"]);
    assert_eq!(unknown[0].remedy, "Did you mean burn?");
    let unknown = explain(&fixture, &["bunr"], of_profile()).await.unwrap();
    assert!(
        unknown[0].suggestions.is_empty(),
        "the agent does not have it"
    );
}

#[tokio::test]
async fn a_scope_that_cannot_be_is_refused_with_its_field() {
    let fixture = fixture().await;
    let both = AvailabilityScope {
        run_id: TURN.to_owned(),
        node_path: "ask".to_owned(),
        ..of_profile()
    };
    let refused = explain(&fixture, &["read"], both).await.unwrap_err();
    let fields: Vec<String> = grpc_kit::violations(&refused)
        .into_iter()
        .map(|(field, _)| field)
        .collect();
    assert_eq!(fields, ["scope.profile_id", "scope.workflow_id"]);
    let absent = AvailabilityScope {
        profile_id: "absent".to_owned(),
        ..AvailabilityScope::default()
    };
    let missing = explain(&fixture, &["read"], absent).await.unwrap_err();
    assert_eq!(missing.code(), Code::NotFound);
    assert_eq!(
        grpc_kit::reason(&missing),
        Some(ErrorReason::ProfileNotFound)
    );
}
