//! Two tenants with equal names: tools, servers, approvals and request ids of one are none of another's.

use std::collections::BTreeMap;

use contracts::tavern::{
    common::v1::{CallStatus, ErrorReason},
    registry::v1::{
        BatchGetToolsRequest, DeleteBackendRequest, DeleteToolRequest, GetApprovalRequest,
        GetBackendRequest, GetToolRequest, ListApprovalsRequest, ListBackendsRequest,
        ListToolsRequest, PutBackendRequest, PutToolRequest, Tool, ValidateCallRequest,
        approval_service_client::ApprovalServiceClient, call_service_client::CallServiceClient,
        tool_registry_service_client::ToolRegistryServiceClient,
    },
};
use serde_json::{Value, json};
use tonic::Status;

use crate::{
    approvals::{approver, give, pending},
    backend::{flows, serve, tool},
    fixture::{Catalogue, Fixture, finish, node_tool, with_effect},
};

fn catalogue_of(fixture: &Fixture, principal: &str) -> Catalogue {
    ToolRegistryServiceClient::new(fixture.acting_for(principal, &[]))
}

pub(crate) fn described(id: &str, description: &str) -> Value {
    let mut tool = node_tool(id);
    tool["description"] = json!(description);
    tool
}

pub(crate) async fn put(fixture: &Fixture, by: &str, definition: Value) -> Tool {
    let request = PutToolRequest {
        definition_json: definition.to_string(),
        request_id: "once".into(),
        ..PutToolRequest::default()
    };
    let put = catalogue_of(fixture, by).put_tool(request).await;
    put.unwrap().into_inner().tool.unwrap()
}

async fn get(fixture: &Fixture, by: &str, id: &str) -> Result<Tool, Status> {
    let request = GetToolRequest { tool_id: id.into() };
    let got = catalogue_of(fixture, by).get_tool(request).await?;
    Ok(got.into_inner().tool.unwrap())
}

async fn delete(fixture: &Fixture, by: &str, id: &str) -> Result<(), Status> {
    let request = DeleteToolRequest {
        tool_id: id.into(),
        ..DeleteToolRequest::default()
    };
    catalogue_of(fixture, by)
        .delete_tool(request)
        .await
        .map(drop)
}

/// Returns the tools that were put and that a principal sees: id, description, whether it is shared.
async fn listed(fixture: &Fixture, by: &str) -> Vec<(String, String, bool)> {
    let request = ListToolsRequest {
        page_size: 500,
        ..ListToolsRequest::default()
    };
    let listed = catalogue_of(fixture, by).list_tools(request).await.unwrap();
    let tools = listed.into_inner().tools.into_iter();
    let put = tools.filter(|tool| tool.tool_id.starts_with("own"));
    put.map(|tool| (tool.tool_id, tool.description, tool.shared))
        .collect()
}

fn masked(status: &Status, id: &str) -> (tonic::Code, String, BTreeMap<String, String>) {
    let hide = |text: &str| text.replace(id, "ID");
    let metadata = grpc_kit::metadata(status).into_iter();
    let metadata = metadata.map(|(key, value)| (key, hide(&value)));
    (status.code(), hide(status.message()), metadata.collect())
}

#[tokio::test]
async fn a_tool_of_the_tenant_comes_before_a_shared_one_and_none_of_others_is_there() {
    let mut fixture = Fixture::new().await;
    put(&fixture, "ada", described("own.a", "of default")).await;
    let of_acme = put(&fixture, "acme/bob", described("own.a", "of acme")).await;
    // Equal request ids of two tenants are two requests, and none is another's repeat.
    assert_eq!(of_acme.description, "of acme");
    put(&fixture, "acme/bob", described("own.a", "of acme")).await;
    for (id, request_id) in [("own.a", "s1"), ("own.s", "s2")] {
        let request = PutToolRequest {
            definition_json: described(id, "shared").to_string(),
            request_id: request_id.into(),
            ..PutToolRequest::default()
        };
        catalogue_of(&fixture, "system/root")
            .put_tool(request)
            .await
            .unwrap();
    }
    let entry = |id: &str, text: &str, shared| (id.to_owned(), text.to_owned(), shared);
    for round in 0..2 {
        let shared = entry("own.s", "shared", true);
        let expected = [entry("own.a", "of default", false), shared.clone()];
        assert_eq!(listed(&fixture, "ada").await, expected, "{round}");
        let expected = [entry("own.a", "of acme", false), shared.clone()];
        assert_eq!(listed(&fixture, "acme/eve").await, expected, "{round}");
        let expected = [entry("own.a", "shared", true), shared];
        assert_eq!(listed(&fixture, "beta/kim").await, expected, "{round}");
        let expected = [
            entry("own.a", "shared", false),
            entry("own.s", "shared", false),
        ];
        assert_eq!(listed(&fixture, "system/root").await, expected, "{round}");
        for by in ["ada", "acme/bob", "beta/kim"] {
            // The tools of the platform are for all.
            assert!(
                !get(&fixture, by, "CodeInterpreter:execute")
                    .await
                    .unwrap()
                    .shared
            );
        }
        fixture.crash_and_restart().await;
    }
    let called = finish(
        CallServiceClient::new(fixture.acting_for("beta/kim", &[])),
        with_effect("e1", "own.s", json!({})),
    );
    let (_, result) = called.await.unwrap();
    assert_eq!(result.status(), CallStatus::Succeeded, "{result:?}");

    let refused = delete(&fixture, "acme/bob", "own.s").await.unwrap_err();
    assert_eq!(grpc_kit::reason(&refused), Some(ErrorReason::InvalidFields));
    delete(&fixture, "acme/bob", "own.a").await.unwrap();
    let uncovered = get(&fixture, "acme/bob", "own.a").await.unwrap();
    assert!(uncovered.shared && uncovered.description == "shared");
    delete(&fixture, "system/root", "own.a").await.unwrap();
    assert!(get(&fixture, "acme/bob", "own.a").await.is_err());
    assert_eq!(
        get(&fixture, "ada", "own.a").await.unwrap().description,
        "of default"
    );
}

#[tokio::test]
async fn a_tool_of_another_tenant_is_answered_as_one_that_does_not_exist() {
    let fixture = Fixture::new().await;
    put(&fixture, "acme/bob", described("own.secret", "secret")).await;
    put(&fixture, "ada", described("other", "of default")).await;
    let foreign = get(&fixture, "ada", "own.secret").await.unwrap_err();
    let missing = get(&fixture, "ada", "own.absent").await.unwrap_err();
    assert_eq!(
        masked(&foreign, "own.secret"),
        masked(&missing, "own.absent")
    );
    let foreign = delete(&fixture, "ada", "own.secret").await.unwrap_err();
    let missing = delete(&fixture, "ada", "own.absent").await.unwrap_err();
    assert_eq!(
        masked(&foreign, "own.secret"),
        masked(&missing, "own.absent")
    );
    let mut ada = catalogue_of(&fixture, "ada");
    let request = BatchGetToolsRequest {
        tool_ids: vec!["own.secret".into(), "other".into()],
        ..BatchGetToolsRequest::default()
    };
    let found = ada.batch_get_tools(request).await.unwrap().into_inner();
    assert_eq!(
        (found.tools.len(), found.missing_tool_ids.as_slice()),
        (1, &["own.secret".to_owned()][..])
    );
    let request = ValidateCallRequest {
        tool_id: "own.secret".into(),
        ..ValidateCallRequest::default()
    };
    let refused = ada.validate_call(request).await.unwrap_err();
    assert_eq!(grpc_kit::reason(&refused), Some(ErrorReason::ToolNotFound));
    // A page token of another tenant's list is refused as a forged one.
    let page = ListToolsRequest {
        page_size: 1,
        ..ListToolsRequest::default()
    };
    let token = catalogue_of(&fixture, "acme/bob")
        .list_tools(page.clone())
        .await
        .unwrap();
    let page_token = token.into_inner().next_page_token;
    assert_ne!(page_token, "");
    let refused = ada
        .list_tools(ListToolsRequest { page_token, ..page })
        .await;
    assert_eq!(
        grpc_kit::violations(&refused.unwrap_err())[0].0,
        "page_token"
    );
    let (_, called) = finish(
        CallServiceClient::new(fixture.acting_for("ada", &[])),
        with_effect("e1", "own.secret", json!({})),
    )
    .await
    .unwrap();
    assert_eq!(called.error.unwrap().code, "unknown_tool");
}

#[tokio::test]
async fn servers_of_one_name_of_two_tenants_are_two_servers() {
    let mut fixture = Fixture::new().await;
    let (of_default, of_acme, shared) = (serve().await, serve().await, serve().await);
    for (by, backend) in [
        ("ada", &of_default),
        ("acme/bob", &of_acme),
        ("system/root", &shared),
    ] {
        catalogue_of(&fixture, by)
            .put_backend(flows(backend))
            .await
            .unwrap();
    }
    put(&fixture, "ada", tool("start", "StartRun")).await;
    put(&fixture, "acme/bob", tool("start", "StartRun")).await;
    put(&fixture, "system/root", tool("lent", "StartRun")).await;
    for _ in 0..2 {
        let start = json!({"workflowId": "w1", "inputsJson": "{}"});
        for (by, tool) in [
            ("ada", "start"),
            ("acme/bob", "start"),
            ("acme/bob", "lent"),
        ] {
            let calls = CallServiceClient::new(fixture.acting_for(by, &[]));
            let request = crate::fixture::request(tool, start.clone());
            let (_, result) = finish(calls, request).await.unwrap();
            assert_eq!(
                result.status(),
                CallStatus::Succeeded,
                "{by} {tool} {result:?}"
            );
        }
        fixture.crash_and_restart().await;
    }
    // A shared tool calls the server that its own tenant has.
    for backend in [&of_default, &of_acme, &shared] {
        assert_eq!(backend.workflows.started.lock().unwrap().len(), 2);
    }
    for (by, is_shared) in [("ada", false), ("acme/bob", false), ("beta/kim", true)] {
        let mut catalogue = catalogue_of(&fixture, by);
        let listed = catalogue
            .list_backends(ListBackendsRequest::default())
            .await;
        let listed = listed.unwrap().into_inner().backends;
        let found: Vec<_> = listed
            .iter()
            .map(|found| (found.name.as_str(), found.shared))
            .collect();
        assert_eq!(found, [("flows", is_shared)], "{by}");
        let request = GetBackendRequest {
            name: "flows".into(),
        };
        let got = catalogue.get_backend(request).await.unwrap().into_inner();
        assert_eq!(got.backend.unwrap(), listed[0]);
    }
    let request = DeleteBackendRequest {
        name: "flows".into(),
        ..DeleteBackendRequest::default()
    };
    let refused = catalogue_of(&fixture, "beta/kim")
        .delete_backend(request)
        .await;
    assert_eq!(
        grpc_kit::reason(&refused.unwrap_err()),
        Some(ErrorReason::InvalidFields)
    );
}

#[tokio::test]
async fn a_tenant_reaches_no_server_on_loopback_that_the_settings_do_not_list() {
    let fixture = Fixture::new().await;
    let backend = serve().await;
    let at = |host: &str| PutBackendRequest {
        endpoint: format!("http://{host}:{}", backend.address.port()),
        ..flows(&backend)
    };
    for (by, host, allowed) in [
        ("acme/bob", "localhost", false),
        ("acme/bob", "127.0.0.2", false),
        // The settings of these tests list it.
        ("acme/bob", "127.0.0.1", true),
        ("ada", "localhost", true),
        ("system/root", "localhost", true),
    ] {
        let put = catalogue_of(&fixture, by).put_backend(at(host)).await;
        let refused = put.err().map(|refused| grpc_kit::violations(&refused));
        let field = refused.map(|violations| violations[0].0.clone());
        let expected = (!allowed).then(|| "endpoint".to_owned());
        assert_eq!(field, expected, "{by} {host}");
    }
}

#[tokio::test]
async fn an_approval_is_seen_and_decided_in_its_tenant_only() {
    let file = json!({
        "rules": [{"id": "gifts", "tools": ["give"], "action": "ask", "approvers": {"role": "keeper"}}],
        "approvers": [approver("mara", &["keeper"])]
    });
    let fixture = Fixture::with_approvals(&[give()], &file).await;
    let start = async |by: &str| {
        let request = contracts::tavern::registry::v1::StartCallRequest {
            tool_id: "give".into(),
            arguments_json: "{\"value\":1}".into(),
            effect_id: "e1".into(),
            ..Default::default()
        };
        let mut calls = CallServiceClient::new(fixture.acting_for(by, &[]));
        calls.start_call(request).await.unwrap();
    };
    start("local").await;
    let own = pending(&fixture, "e1").await;
    let mut acme = ApprovalServiceClient::new(fixture.acting_for("acme/local", &[]));
    let listed = acme.list_approvals(ListApprovalsRequest::default()).await;
    assert_eq!(listed.unwrap().into_inner().approvals, []);
    let get = |id: &str| GetApprovalRequest {
        approval_id: id.to_owned(),
    };
    let foreign = acme.get_approval(get(&own.approval_id)).await.unwrap_err();
    let missing = acme.get_approval(get("apr_0")).await.unwrap_err();
    assert_eq!(
        masked(&foreign, &own.approval_id),
        masked(&missing, "apr_0")
    );
    let mut decision = tonic::Request::new(crate::approvals::approve(&own));
    let bearer = "Bearer key of mara".parse().unwrap();
    decision.metadata_mut().insert("authorization", bearer);
    let refused = acme.decide_approval(decision).await.unwrap_err();
    assert_eq!(
        masked(&refused, &own.approval_id),
        masked(&missing, "apr_0")
    );
    assert_eq!(pending(&fixture, "e1").await, own);
}
