//! The scope of an agent's calls, as the registry receives it (rules R501 and G801).

use contracts::tavern::{
    agent::v1::{
        GetToolScopeRequest, GetToolScopeResponse, PutProfileRequest, get_tool_scope_request::Agent,
    },
    common::v1::ErrorReason,
};
use doubles::TestRegistry;
use serde_json::{Value, json};
use tonic::Status;

use crate::world::{Running, World, says};

impl Running {
    async fn scope(&self, agent: Agent) -> Result<GetToolScopeResponse, Status> {
        let request = GetToolScopeRequest { agent: Some(agent) };
        Ok(self
            .agent
            .clone()
            .get_tool_scope(request)
            .await?
            .into_inner())
    }

    async fn put_ada_with(&self, tools: &Value, rules: &Value) {
        let profile = json!({
            "id": "ada",
            "tool_ids_inventory": tools,
            "skill_workflow_ids_inventory": ["workflows/greet.json"],
            "custom_metadata": {"tavern": {"model": "play", "approvals": rules}},
        });
        let request = PutProfileRequest {
            profile_json: profile.to_string(),
            ..PutProfileRequest::default()
        };
        self.profiles.clone().put_profile(request).await.unwrap();
    }
}

#[tokio::test]
async fn r501_a_turn_keeps_the_scope_that_it_was_started_with() {
    let turns = json!([{"answer": {"text": "hi"}}]);
    let world = World::new(TestRegistry::default(), &[], &turns);
    let running = world.build().await;
    let rules = json!([{"id": "r", "tools": ["world:UpdateState"], "action": "deny"}]);
    let tools = json!(["core:ReadPrivateState", "workflow:greet"]);
    running.put_ada_with(&tools, &rules).await;
    let run_id = running.play(says("hello")).await.run.run_id;
    running.put_ada_with(&json!([]), &json!([])).await;

    let of_turn = running.scope(Agent::RunId(run_id.clone())).await.unwrap();
    assert_eq!(of_turn.profile_id, "ada");
    assert_eq!(of_turn.tool_ids, ["ReadPrivateStateTool", "workflow:greet"]);
    assert!(
        of_turn
            .handle_tool_ids
            .contains(&"system:cancel".to_owned()),
        "{of_turn:?}"
    );
    let rules: Value = serde_json::from_str(&of_turn.approvals_json).unwrap();
    assert_eq!(rules[0]["tools"], json!(["RequestWorldStateUpdateTool"]));

    running.runtime.shutdown().await;
    drop(running);
    let running = world.build().await;
    let again = running.scope(Agent::RunId(run_id)).await.unwrap();
    assert_eq!(again, of_turn, "also after a restart");
    let of_profile = Agent::ProfileId("ada".to_owned());
    let of_profile = running.scope(of_profile).await.unwrap();
    assert_eq!(of_profile.tool_ids, ["workflow:greet"]);
    assert_eq!(of_profile.approvals_json, "[]");
}

#[tokio::test]
async fn an_agent_that_is_not_there_is_named() {
    let turns = json!([{"answer": {"text": "hi"}}]);
    let running = World::new(TestRegistry::default(), &[], &turns)
        .build()
        .await;
    let run = "turn_00000000000000000000000000000001".to_owned();
    for (agent, reason) in [
        (Agent::RunId(run), ErrorReason::RunNotFound),
        (
            Agent::ProfileId("bob".to_owned()),
            ErrorReason::ProfileNotFound,
        ),
    ] {
        let refused = running.scope(agent).await.unwrap_err();
        assert_eq!(grpc_kit::reason(&refused), Some(reason));
    }
}
