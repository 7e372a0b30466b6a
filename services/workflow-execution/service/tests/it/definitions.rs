//! Saving, listing and checking definitions.

use contracts::tavern::common::v1::{ErrorReason, RunState, Severity};
use contracts::tavern::workflow::v1::{
    BatchGetWorkflowsRequest, DeleteWorkflowRequest, GetWorkflowRequest, ListWorkflowsRequest,
    PutWorkflowRequest, ReloadWorkflowsRequest, ValidateWorkflowRequest, Workflow,
};
use serde_json::json;
use tonic::{Code, Status};

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

async fn get(client: &mut Client, id: &str) -> Result<Workflow, Status> {
    let request = GetWorkflowRequest {
        workflow_id: id.into(),
    };
    let response = client.get_workflow(request).await?;
    Ok(response.into_inner().workflow.unwrap())
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
async fn an_unknown_id_is_answered_with_the_one_that_was_meant() {
    let world = World::new().await;
    let mut client = world.client.clone();
    client.put_workflow(put("greeter", "one")).await.unwrap();
    for (id, meant) in [("greetr", true), ("Greeter", true), ("absent", false)] {
        let refused = get(&mut client, id).await.unwrap_err();
        let asked = refused.message().ends_with("; did you mean `greeter`?");
        assert_eq!(asked, meant, "{id}: {}", refused.message());
    }
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
    let status = client.put_workflow(late).await.unwrap_err();
    assert_eq!(
        (status.code(), grpc_kit::reason(&status)),
        (Code::Aborted, Some(ErrorReason::EtagMismatch))
    );
    let current = get(&mut client, "mine").await.unwrap();
    assert_eq!(grpc_kit::metadata(&status)["etag"], current.etag);
    let absent = PutWorkflowRequest {
        etag: current.etag,
        ..put("other", "three")
    };
    let status = client.put_workflow(absent).await.unwrap_err();
    assert_eq!(grpc_kit::reason(&status), Some(ErrorReason::EtagMismatch));
    assert_eq!(grpc_kit::metadata(&status)["etag"], "");
    assert!(status.message().contains("does not exist"), "{status}");
}

#[tokio::test]
async fn a_deleted_definition_is_gone_for_good_and_its_runs_continue() {
    let world = World::new().await;
    let mut client = world.client.clone();
    let definition = json!({"nodes": [tool("t", "wait")]});
    let stored = client
        .put_workflow(PutWorkflowRequest {
            workflow_id: "mine".into(),
            definition_json: definition.to_string(),
            ..Default::default()
        })
        .await
        .unwrap()
        .into_inner();
    let run = world.begin(of_workflow("mine", json!({}))).await;
    let delete = |etag: &str| DeleteWorkflowRequest {
        workflow_id: "mine".into(),
        etag: etag.to_owned(),
    };
    let status = client.delete_workflow(delete("x")).await.unwrap_err();
    let etag = stored.workflow.unwrap().etag;
    assert_eq!(
        (status.code(), grpc_kit::reason(&status)),
        (Code::Aborted, Some(ErrorReason::EtagMismatch))
    );
    assert_eq!(grpc_kit::metadata(&status)["etag"], etag);
    client.delete_workflow(delete(&etag)).await.unwrap();
    let world = world.restart().await;
    let mut client = world.client.clone();
    let status = get(&mut client, "mine").await.unwrap_err();
    assert_eq!(
        grpc_kit::reason(&status),
        Some(ErrorReason::WorkflowNotFound)
    );
    let status = client.delete_workflow(delete("")).await.unwrap_err();
    assert_eq!(
        (status.code(), grpc_kit::reason(&status)),
        (Code::NotFound, Some(ErrorReason::WorkflowNotFound))
    );
    world.registry.release();
    let outcome = world.outcome(&run.run_id).await;
    assert_eq!(outcome.state(), RunState::Succeeded);
}

#[tokio::test]
async fn a_file_cannot_be_deleted() {
    let world = World::new().await;
    let mut client = world.client.clone();
    let file = get(&mut client, "summarize_text").await.unwrap();
    assert!(file.from_file);
    let request = DeleteWorkflowRequest {
        workflow_id: "summarize_text".into(),
        etag: String::new(),
    };
    let status = client.delete_workflow(request).await.unwrap_err();
    assert_eq!(grpc_kit::reason(&status), Some(ErrorReason::InvalidFields));
    assert_eq!(grpc_kit::violations(&status)[0].0, "workflow_id");
}

#[tokio::test]
async fn several_definitions_are_returned_at_once_and_the_missing_ones_named() {
    let world = World::new().await;
    let mut client = world.client.clone();
    client.put_workflow(put("b", "b")).await.unwrap();
    client.put_workflow(put("a", "a")).await.unwrap();
    let batch = |ids: &[&str]| BatchGetWorkflowsRequest {
        workflow_ids: ids.iter().map(|&id| id.to_owned()).collect(),
    };
    let request = batch(&["b", "none", "a", "b", "summarize_text"]);
    let found = client.batch_get_workflows(request).await.unwrap();
    let found = found.into_inner();
    let ids: Vec<&str> = found
        .workflows
        .iter()
        .map(|workflow| workflow.workflow_id.as_str())
        .collect();
    assert_eq!(ids, ["b", "a", "summarize_text"]);
    assert_eq!(found.missing_workflow_ids, ["none"]);
    assert_eq!(found.workflows[0], get(&mut client, "b").await.unwrap());
    for wrong in [batch(&[]), batch(&["a"; 101])] {
        let status = client.batch_get_workflows(wrong).await.unwrap_err();
        assert_eq!(grpc_kit::violations(&status)[0].0, "workflow_ids");
    }
}

#[tokio::test]
async fn a_batch_that_does_not_fit_an_answer_is_refused() {
    let world = World::new().await;
    let mut client = world.client.clone();
    let large = json!({"nodes": [], "note": "x".repeat(2 * 1024 * 1024)});
    for id in ["a", "b"] {
        let request = PutWorkflowRequest {
            workflow_id: id.into(),
            definition_json: large.to_string(),
            ..Default::default()
        };
        client.put_workflow(request).await.unwrap();
    }
    let both = BatchGetWorkflowsRequest {
        workflow_ids: vec!["a".into(), "b".into()],
    };
    let status = client.batch_get_workflows(both).await.unwrap_err();
    assert_eq!(grpc_kit::reason(&status), Some(ErrorReason::LimitExceeded));
}

#[tokio::test]
async fn files_are_read_again_without_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        std::fs::write(directory.path().join(format!("{name}.json")), text).unwrap();
    };
    for name in ["gone", "kept", "spoilt", "edited"] {
        write(name, r#"{"nodes":[]}"#);
    }
    let world = World::with(|settings| settings.workflows_dir = directory.path().to_owned()).await;
    let mut client = world.client.clone();
    std::fs::remove_file(directory.path().join("gone.json")).unwrap();
    write("edited", r#"{"name":"Edited","nodes":[]}"#);
    write("spoilt", "{");
    write("new", r#"{"nodes":[]}"#);
    let reload = ReloadWorkflowsRequest {};
    let changes = client.reload_workflows(reload).await.unwrap().into_inner();
    assert_eq!(changes.added_workflow_ids, ["new"]);
    assert_eq!(changes.changed_workflow_ids, ["edited"]);
    assert_eq!(changes.removed_workflow_ids, ["gone", "spoilt"]);
    let paths: Vec<&str> = changes
        .diagnostics
        .iter()
        .map(|finding| finding.path.as_str())
        .collect();
    assert_eq!(paths, ["spoilt.json"]);
    assert_eq!(get(&mut client, "edited").await.unwrap().name, "Edited");
    let status = get(&mut client, "gone").await.unwrap_err();
    assert_eq!(
        grpc_kit::reason(&status),
        Some(ErrorReason::WorkflowNotFound)
    );
    let again = client.reload_workflows(reload).await.unwrap().into_inner();
    assert!(again.added_workflow_ids.is_empty() && again.changed_workflow_ids.is_empty());
    assert!(again.removed_workflow_ids.is_empty());
}

#[tokio::test]
async fn a_directory_that_cannot_be_read_again_leaves_the_definitions_as_they_were() {
    let directory = tempfile::tempdir().unwrap();
    let workflows = directory.path().join("workflows");
    std::fs::create_dir(&workflows).unwrap();
    std::fs::write(workflows.join("one.json"), r#"{"nodes":[]}"#).unwrap();
    let world = World::with(|settings| settings.workflows_dir = workflows.clone()).await;
    let mut client = world.client.clone();
    std::fs::remove_dir_all(&workflows).unwrap();
    let reload = client.reload_workflows(ReloadWorkflowsRequest {}).await;
    let status = reload.unwrap_err();
    assert_eq!(
        (status.code(), grpc_kit::reason(&status)),
        (Code::Unavailable, Some(ErrorReason::StorageUnavailable))
    );
    assert_eq!(get(&mut client, "one").await.unwrap().workflow_id, "one");
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
    ] {
        let status = client.put_workflow(request).await.unwrap_err();
        assert_eq!(grpc_kit::reason(&status), Some(reason));
        assert_eq!(grpc_kit::violations(&status)[0].0, field);
    }
}

#[tokio::test]
async fn a_definition_hides_the_file_of_its_id_until_it_is_deleted() {
    let world = World::new().await;
    let mut client = world.client.clone();
    let get = GetWorkflowRequest {
        workflow_id: "summarize_text".to_owned(),
    };
    let file = client.get_workflow(get.clone()).await.unwrap().into_inner();
    let file = file.workflow.unwrap();
    assert!(file.from_file);
    let hidden = client
        .put_workflow(put("summarize_text", ""))
        .await
        .unwrap();
    let hidden = hidden.into_inner().workflow.unwrap();
    assert!(!hidden.from_file);
    let delete = DeleteWorkflowRequest {
        workflow_id: "summarize_text".to_owned(),
        etag: hidden.etag,
    };
    client.delete_workflow(delete.clone()).await.unwrap();
    let again = client.get_workflow(get).await.unwrap().into_inner();
    assert_eq!(again.workflow.as_ref(), Some(&file));
    let refused = client.delete_workflow(delete).await.unwrap_err();
    assert_eq!(grpc_kit::reason(&refused), Some(ErrorReason::InvalidFields));
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
            ..ListWorkflowsRequest::default()
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
        page_token: "x".into(),
        ..ListWorkflowsRequest::default()
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
        "interfaceInputs": {"text": {"dataFlowType": "OBJECT", "isStream": true, "multi": true}},
        "nodes": [],
    });
    let expected = [("/interfaceInputs/text/isStream", "not_supported")];
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
            ..ValidateWorkflowRequest::default()
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
    let peers = workflow_execution::Peers::over(transport.clone(), transport.clone(), transport);
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
        ..ValidateWorkflowRequest::default()
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
