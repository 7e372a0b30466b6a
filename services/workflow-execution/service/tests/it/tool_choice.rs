//! The tools that models of a workflow may choose from, in the answers to the registry.

use contracts::tavern::workflow::v1::{
    GetToolChoiceRequest, GetToolChoiceResponse, PutWorkflowRequest,
};
use serde_json::json;
use tonic::Status;

use crate::support::*;

/// A workflow with a group of which one node takes the tools of its own workflow, a node that adds
/// tools to those of the outer workflow, and a node that names others in their place.
async fn choosing(world: &World) -> impl AsyncFn(&str) -> Result<GetToolChoiceResponse, Status> {
    let inner = json!({
        "availableTools": {"initial": ["of_group"]},
        "nodes": [{"id": "list", "type": "core:AvailableTools"}],
    });
    let model = |id: &str, config| {
        json!({"id": id, "type": "core:LLMDecisionWithTools", "configValues": config,
               "inputValues": {"user_query": "?"}})
    };
    let adds = json!({"profileId": "m", "dynamicTools": {"toolIds": ["added"]}});
    let replaces = json!({"profileId": "m", "toolIds": ["own"]});
    let outer = json!({
        "availableTools": {"initial": ["first", "second"]},
        "nodes": [
            {"id": "group", "type": "core:NodeGroup", "configValues": {"referencedWorkflowId": "inner"}},
            model("adds", adds),
            model("replaces", replaces),
            {"id": "text", "type": "core:TextMerge", "inputValues": {"text_inputs": ["a"]}},
        ],
    });
    for (id, definition) in [("inner", inner), ("outer", outer)] {
        let request = PutWorkflowRequest {
            workflow_id: id.into(),
            definition_json: definition.to_string(),
            ..Default::default()
        };
        world.client.clone().put_workflow(request).await.unwrap();
    }
    let client = world.client.clone();
    async move |node_path| {
        let request = GetToolChoiceRequest {
            workflow_id: "outer".into(),
            node_path: node_path.into(),
        };
        Ok(client.clone().get_tool_choice(request).await?.into_inner())
    }
}

#[tokio::test]
async fn w29_what_models_may_choose_from_is_known_for_each_node_that_lists_tools() {
    let world = World::new().await;
    let choice = choosing(&world).await;
    for (node, listed) in [
        ("group/list", &["of_group"][..]),
        ("adds", &["first", "second", "added"]),
        ("replaces", &["own"]),
        ("", &["of_group", "first", "second", "added", "own"]),
    ] {
        let choice = choice(node).await.unwrap();
        assert_eq!(choice.initial_tool_ids, ["first", "second"]);
        assert_eq!(choice.listed_tool_ids, listed, "{node}");
        assert!(choice.has_listing_nodes);
    }
    let refused = choice("text").await.unwrap_err();
    assert_eq!(grpc_kit::violations(&refused)[0].0, "node_path");
}
