//! Saving, listing and checking definitions.

use contracts::tavern::common::v1::{ErrorReason, Severity};
use contracts::tavern::workflow::v1::{
    GetWorkflowRequest, ListNodeTypesRequest, ListWorkflowsRequest, PutWorkflowRequest,
    ValidateWorkflowRequest,
};
use serde_json::json;
use tonic::Code;

use crate::support::*;

fn put(id: &str, name: &str) -> PutWorkflowRequest {
    let definition =
        json!({"name": name, "description": "d", "nodes": [], "glow": {"b": 1, "a": 1.50}});
    PutWorkflowRequest {
        workflow_id: id.into(),
        definition_json: definition.to_string(),
        ..Default::default()
    }
}

#[tokio::test]
async fn a_definition_is_given_back_as_it_was_saved() {
    let world = World::new().await;
    let request = put("mine", "My flow");
    let saved = world
        .client
        .clone()
        .put_workflow(request.clone())
        .await
        .unwrap()
        .into_inner()
        .workflow
        .unwrap();
    let world = world.restart().await;
    let get = GetWorkflowRequest {
        workflow_id: "mine".into(),
    };
    let got = world
        .client
        .clone()
        .get_workflow(get)
        .await
        .unwrap()
        .into_inner()
        .workflow
        .unwrap();
    assert_eq!(got, saved);
    assert_eq!(
        (got.name.as_str(), got.description.as_str()),
        ("My flow", "d")
    );
    assert_eq!(got.definition_json, request.definition_json);
}

#[tokio::test]
async fn an_etag_keeps_changes_apart() {
    let world = World::new().await;
    let mut client = world.client.clone();
    let first = client
        .put_workflow(put("mine", "one"))
        .await
        .unwrap()
        .into_inner()
        .workflow
        .unwrap();
    let second = PutWorkflowRequest {
        etag: first.etag.clone(),
        ..put("mine", "two")
    };
    client.put_workflow(second).await.unwrap();
    let late = PutWorkflowRequest {
        etag: first.etag,
        ..put("mine", "three")
    };
    assert_eq!(
        client.put_workflow(late).await.unwrap_err().code(),
        Code::Aborted
    );
}

#[tokio::test]
async fn a_repeated_request_changes_nothing() {
    let world = World::new().await;
    let mut client = world.client.clone();
    let request = PutWorkflowRequest {
        request_id: "r".into(),
        ..put("mine", "one")
    };
    let first = client
        .put_workflow(request.clone())
        .await
        .unwrap()
        .into_inner();
    client.put_workflow(put("mine", "two")).await.unwrap();
    assert_eq!(
        client.put_workflow(request).await.unwrap().into_inner(),
        first
    );
    let get = GetWorkflowRequest {
        workflow_id: "mine".into(),
    };
    assert_eq!(
        client
            .get_workflow(get)
            .await
            .unwrap()
            .into_inner()
            .workflow
            .unwrap()
            .name,
        "two"
    );
    let other = PutWorkflowRequest {
        request_id: "r".into(),
        ..put("mine", "three")
    };
    let status = client.put_workflow(other).await.unwrap_err();
    assert_eq!(
        grpc_kit::reason(&status),
        Some(ErrorReason::RequestIdReused)
    );
}

#[tokio::test]
async fn checking_alone_saves_nothing() {
    let world = World::new().await;
    let mut client = world.client.clone();
    client
        .put_workflow(PutWorkflowRequest {
            validate_only: true,
            ..put("mine", "one")
        })
        .await
        .unwrap();
    let get = GetWorkflowRequest {
        workflow_id: "mine".into(),
    };
    let status = client.get_workflow(get).await.unwrap_err();
    assert_eq!(
        grpc_kit::reason(&status),
        Some(ErrorReason::WorkflowNotFound)
    );
    assert_eq!(grpc_kit::metadata(&status)["workflow_id"], "mine");
}

#[tokio::test]
async fn a_definition_that_is_wrong_is_not_saved() {
    let world = World::new().await;
    let mut client = world.client.clone();
    for (request, reason, field) in [
        (
            PutWorkflowRequest {
                definition_json: "{".into(),
                ..put("x", "")
            },
            ErrorReason::WorkflowInvalid,
            "definition_json",
        ),
        (
            PutWorkflowRequest {
                definition_json: "{}".into(),
                ..put("x", "")
            },
            ErrorReason::WorkflowInvalid,
            "definition_json/nodes",
        ),
        (put("a/b", ""), ErrorReason::InvalidFields, "workflow_id"),
        (put("", ""), ErrorReason::InvalidFields, "workflow_id"),
        (
            put("summarize_text", ""),
            ErrorReason::InvalidFields,
            "workflow_id",
        ),
    ] {
        let status = client.put_workflow(request).await.unwrap_err();
        assert_eq!(grpc_kit::reason(&status), Some(reason));
        assert_eq!(grpc_kit::violations(&status)[0].0, field);
    }
}

#[tokio::test]
async fn definitions_are_listed_by_id_over_pages() {
    let world = World::with(|settings| settings.workflows_dir = Default::default()).await;
    let mut client = world.client.clone();
    for id in ["c", "a", "b"] {
        client.put_workflow(put(id, id)).await.unwrap();
    }
    let mut seen = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = ListWorkflowsRequest {
            page_size: 2,
            page_token,
        };
        let page = client.list_workflows(request).await.unwrap().into_inner();
        seen.extend(
            page.workflows
                .into_iter()
                .map(|workflow| workflow.workflow_id),
        );
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    assert_eq!(seen, ["a", "b", "c"]);
    let foreign = ListWorkflowsRequest {
        page_size: 0,
        page_token: "x".into(),
    };
    let status = client.list_workflows(foreign).await.unwrap_err();
    assert_eq!(grpc_kit::violations(&status)[0].0, "page_token");
}

#[tokio::test]
async fn a_broken_file_is_not_listed_and_says_why() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(
        directory.path().join("good.json"),
        r#"{"name":"Good","nodes":[]}"#,
    )
    .unwrap();
    std::fs::write(
        directory.path().join("broken.json"),
        r#"{"nodes":[{"id":"a","type":"x"}]}"#,
    )
    .unwrap();
    std::fs::write(directory.path().join("notes.txt"), "not a workflow").unwrap();
    let world = World::with(|settings| settings.workflows_dir = directory.path().to_owned()).await;
    let mut client = world.client.clone();
    let listed = client
        .list_workflows(ListWorkflowsRequest::default())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        listed
            .workflows
            .iter()
            .map(|workflow| workflow.workflow_id.as_str())
            .collect::<Vec<_>>(),
        ["good"]
    );
    let [finding] = listed.diagnostics.as_slice() else {
        panic!("{:?}", listed.diagnostics);
    };
    assert_eq!(
        (finding.severity(), finding.path.as_str()),
        (Severity::Error, "broken.json")
    );
    assert!(
        finding.message.contains("there is no node type `x`"),
        "{finding:?}"
    );
    let status = client
        .get_workflow(GetWorkflowRequest {
            workflow_id: "broken".into(),
        })
        .await
        .unwrap_err();
    assert_eq!(
        grpc_kit::reason(&status),
        Some(ErrorReason::WorkflowInvalid)
    );
    assert_eq!(
        grpc_kit::violations(&status)[0].0,
        "definition_json/nodes/0/type"
    );
    let status = client
        .start_run(of_workflow("broken", json!({})))
        .await
        .unwrap_err();
    assert_eq!(
        grpc_kit::reason(&status),
        Some(ErrorReason::WorkflowInvalid)
    );
    let status = client
        .start_run(of_workflow("none", json!({})))
        .await
        .unwrap_err();
    assert_eq!(
        (status.code(), grpc_kit::reason(&status)),
        (Code::NotFound, Some(ErrorReason::WorkflowNotFound))
    );
}

#[tokio::test]
async fn what_has_no_effect_is_shown_with_the_definition_and_when_it_is_checked() {
    let world = World::new().await;
    let mut client = world.client.clone();
    let definition = json!({
        "availableTools": {"initial": ["a"]},
        "interfaceInputs": {"text": {"dataFlowType": "STRING", "isStream": true}},
        "nodes": [],
    });
    let expected = [
        ("/availableTools", "not_supported"),
        ("/interfaceInputs/text/isStream", "not_supported"),
    ];
    let saved = client
        .put_workflow(PutWorkflowRequest {
            workflow_id: "mine".into(),
            definition_json: definition.to_string(),
            ..Default::default()
        })
        .await
        .unwrap()
        .into_inner();
    let checked = client
        .validate_workflow(ValidateWorkflowRequest {
            definition_json: definition.to_string(),
        })
        .await
        .unwrap()
        .into_inner();
    for diagnostics in [saved.workflow.unwrap().diagnostics, checked.diagnostics] {
        let found: Vec<(&str, &str)> = diagnostics
            .iter()
            .map(|finding| (finding.path.as_str(), finding.code.as_str()))
            .collect();
        assert_eq!(found, expected);
    }
}

#[tokio::test]
async fn a_directory_that_is_not_there_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let settings = workflow_execution::WorkflowSettings {
        data_dir: directory.path().join("data"),
        workflows_dir: directory.path().join("none"),
        ..Default::default()
    };
    let (transport, _slot) = grpc_kit::late();
    let peers = workflow_execution::Peers {
        registry: contracts::tavern::registry::v1::tool_registry_service_client::ToolRegistryServiceClient::new(transport.clone()),
        sandbox: contracts::tavern::sandbox::v1::script_sandbox_service_client::ScriptSandboxServiceClient::new(transport),
    };
    let error = workflow_execution::build(settings, peers)
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("none cannot be listed"), "{error}");
}

#[tokio::test]
async fn checking_names_everything_with_its_place() {
    let world = World::new().await;
    let definition = json!({
        "nodes": [
            {"id": "a", "type": "core:TextMerge"},
            {"id": "b", "type": "core:TextMerge", "inputValues": {"text_inputs": ["x"]}},
        ],
        "edges": [edge("a", "merged_text", "b", "separator"), edge("b", "merged_text", "a", "separator")],
    });
    let request = ValidateWorkflowRequest {
        definition_json: definition.to_string(),
    };
    let violations = world
        .client
        .clone()
        .validate_workflow(request)
        .await
        .unwrap()
        .into_inner()
        .violations;
    let found: Vec<(&str, &str)> = violations
        .iter()
        .map(|v| (v.pointer.as_str(), v.code.as_str()))
        .collect();
    assert_eq!(
        found,
        [
            ("/nodes/0", "cyclic_graph"),
            ("/nodes/0/inputValues/text_inputs", "missing_input")
        ]
    );
    assert!(violations[0].message.contains("a -> b -> a"));
}

#[tokio::test]
async fn node_types_are_listed_by_full_type_over_pages() {
    let world = World::new().await;
    let mut client = world.client.clone();
    let first = client
        .list_node_types(ListNodeTypesRequest {
            page_size: 5,
            ..Default::default()
        })
        .await
        .unwrap()
        .into_inner();
    let token = first.next_page_token;
    let second = client
        .list_node_types(ListNodeTypesRequest {
            page_size: 5,
            page_token: token,
        })
        .await
        .unwrap()
        .into_inner();
    assert_eq!(second.next_page_token, "");
    let types: Vec<String> = first
        .node_types
        .into_iter()
        .chain(second.node_types)
        .map(|node| node.full_type)
        .collect();
    let expected = [
        "core:ExecuteTool",
        "core:FormatPrompt",
        "core:GroupInput",
        "core:GroupOutput",
        "core:JsonSelector",
        "core:MathOperation",
        "core:Script",
        "core:TextMerge",
    ];
    assert_eq!(types, expected);
}
