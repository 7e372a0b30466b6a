//! Changing the catalogue: tools and backends that are added, replaced and deleted.

use contracts::tavern::{
    common::v1::{CallStatus, ErrorReason},
    registry::v1::{
        Backend, DeleteBackendRequest, DeleteToolRequest, GetBackendRequest, GetPluginRequest,
        GetToolRequest, ListBackendsRequest, ListPluginsRequest, PutBackendRequest, PutToolRequest,
    },
};
use serde_json::json;
use tonic::{Code, Status};

use crate::{
    backend::serve,
    fixture::{Fixture, code_of, node_tool},
};

type Refusal = (Code, Option<ErrorReason>);

fn refusal(status: &Status) -> Refusal {
    (status.code(), grpc_kit::reason(status))
}

async fn delete_tool(fixture: &Fixture, request: DeleteToolRequest) -> Result<bool, Refusal> {
    let deleted = fixture.catalogue.clone().delete_tool(request).await;
    deleted
        .map(|response| response.into_inner().replayed)
        .map_err(|status| refusal(&status))
}

async fn etag_of(fixture: &Fixture, tool_id: &str) -> Result<String, Refusal> {
    let request = GetToolRequest {
        tool_id: tool_id.into(),
    };
    let found = fixture.catalogue.clone().get_tool(request).await;
    found
        .map(|response| response.into_inner().tool.unwrap().etag)
        .map_err(|status| refusal(&status))
}

fn tool(tool_id: &str, etag: &str, request_id: &str) -> DeleteToolRequest {
    DeleteToolRequest {
        tool_id: tool_id.into(),
        etag: etag.into(),
        request_id: request_id.into(),
    }
}

const NO_TOOL: Refusal = (Code::NotFound, Some(ErrorReason::ToolNotFound));
const STALE: Refusal = (Code::Aborted, Some(ErrorReason::EtagMismatch));

#[tokio::test]
async fn a_tool_is_deleted_under_its_etag_once_per_request_and_stays_deleted_over_a_restart() {
    let mut fixture = Fixture::new().await;
    fixture.put_tool(node_tool("mine")).await;
    fixture.put_tool(node_tool("kept")).await;
    let etag = etag_of(&fixture, "mine").await.unwrap();
    let stale = delete_tool(&fixture, tool("mine", "0", "")).await;
    assert_eq!(stale, Err(STALE));
    for replayed in [false, true] {
        let deleted = delete_tool(&fixture, tool("mine", &etag, "d1")).await;
        assert_eq!(deleted, Ok(replayed));
    }
    let reused = delete_tool(&fixture, tool("kept", "", "d1")).await;
    let reason = Some(ErrorReason::RequestIdReused);
    assert_eq!(reused, Err((Code::AlreadyExists, reason)));
    assert_eq!(
        delete_tool(&fixture, tool("mine", "", "")).await,
        Err(NO_TOOL)
    );
    fixture.crash_and_restart().await;
    assert_eq!(etag_of(&fixture, "mine").await, Err(NO_TOOL));
    etag_of(&fixture, "kept").await.unwrap();
    let deleted = delete_tool(&fixture, tool("mine", &etag, "d1")).await;
    assert_eq!(deleted, Ok(true));
}

#[tokio::test]
async fn a_repeated_request_does_not_bring_a_deleted_tool_back() {
    let fixture = Fixture::new().await;
    let request = PutToolRequest {
        definition_json: node_tool("mine").to_string(),
        request_id: "p1".into(),
        ..Default::default()
    };
    let mut catalogue = fixture.catalogue.clone();
    catalogue.put_tool(request.clone()).await.unwrap();
    delete_tool(&fixture, tool("mine", "", "")).await.unwrap();
    let again = catalogue.put_tool(request).await.unwrap().into_inner();
    assert!(again.replayed && again.tool.is_some());
    assert_eq!(etag_of(&fixture, "mine").await, Err(NO_TOOL));
}

#[tokio::test]
async fn tools_of_the_platform_of_plugins_and_of_workflows_are_not_deleted() {
    let fixture = Fixture::new().await;
    fixture.workflows.put("w", json!({"name": "w"}));
    let not_owned = (Code::FailedPrecondition, Some(ErrorReason::ToolNotOwned));
    for id in ["read_file", "GetPlayerInfo", "workflow:w", "node:core:Echo"] {
        let refused = delete_tool(&fixture, tool(id, "", "")).await;
        assert_eq!(refused, Err(not_owned), "{id}");
        etag_of(&fixture, id).await.unwrap();
    }
}

async fn backend_of(fixture: &Fixture, name: &str) -> Result<Backend, Refusal> {
    let request = GetBackendRequest { name: name.into() };
    let found = fixture.catalogue.clone().get_backend(request).await;
    found
        .map(|response| response.into_inner().backend.unwrap())
        .map_err(|status| refusal(&status))
}

#[tokio::test]
async fn backends_are_put_read_listed_and_deleted_over_a_restart() {
    let (mut fixture, server) = (Fixture::new().await, serve().await);
    let put = |name: &str, etag: &str, validate_only| {
        let request = PutBackendRequest {
            name: name.into(),
            endpoint: format!("http://{}", server.address),
            etag: etag.into(),
            validate_only,
            ..Default::default()
        };
        let mut catalogue = fixture.catalogue.clone();
        async move {
            let put = catalogue.put_backend(request).await;
            put.map(|response| response.into_inner().backend.unwrap())
                .map_err(|status| refusal(&status))
        }
    };
    let no_backend = Err((Code::NotFound, Some(ErrorReason::BackendNotFound)));
    put("b", "", true).await.unwrap();
    assert_eq!(backend_of(&fixture, "b").await, no_backend);
    assert_eq!(put("b", "0", false).await, Err(STALE));
    let first = put("b", "", false).await.unwrap();
    assert_eq!(put("b", &first.etag, false).await, Ok(first.clone()));
    assert_eq!(backend_of(&fixture, "b").await, Ok(first.clone()));
    put("a", "", false).await.unwrap();
    fixture.crash_and_restart().await;
    let mut names = Vec::new();
    let mut request = ListBackendsRequest {
        page_size: 1,
        ..Default::default()
    };
    loop {
        let mut catalogue = fixture.catalogue.clone();
        let page = catalogue.list_backends(request.clone()).await.unwrap();
        let page = page.into_inner();
        names.extend(page.backends.into_iter().map(|backend| backend.name));
        request.page_token = page.next_page_token;
        if request.page_token.is_empty() {
            break;
        }
    }
    assert_eq!(names, ["a", "b"]);
    let delete = |name: &str, etag: &str, request_id: &str| {
        let request = DeleteBackendRequest {
            name: name.into(),
            etag: etag.into(),
            request_id: request_id.into(),
        };
        let mut catalogue = fixture.catalogue.clone();
        async move {
            let deleted = catalogue.delete_backend(request).await;
            deleted
                .map(|response| response.into_inner().replayed)
                .map_err(|status| refusal(&status))
        }
    };
    assert_eq!(delete("b", "0", "").await, Err(STALE));
    assert_eq!(delete("b", &first.etag, "d1").await, Ok(false));
    assert_eq!(delete("b", &first.etag, "d1").await, Ok(true));
    assert_eq!(delete("b", "", "").await.unwrap_err().0, Code::NotFound);
    fixture.crash_and_restart().await;
    assert_eq!(backend_of(&fixture, "b").await, no_backend);
    backend_of(&fixture, "a").await.unwrap();
}

#[tokio::test]
async fn calls_of_a_deleted_backend_are_rejected_until_it_is_put_again() {
    let (fixture, server) = (Fixture::new().await, serve().await);
    let endpoint = format!("http://{}", server.address);
    let put = PutBackendRequest {
        name: "flows".into(),
        endpoint,
        ..Default::default()
    };
    let delete = DeleteBackendRequest {
        name: "flows".into(),
        ..Default::default()
    };
    let mut catalogue = fixture.catalogue.clone();
    catalogue.put_backend(put.clone()).await.unwrap();
    let method = "tavern.workflow.v1.WorkflowService/GetWorkflow";
    let bound = json!({"id": "get", "parameters": {"type": "object", "additionalProperties": true},
        "implementation": {"type": "service", "service": "flows", "method": method}});
    fixture.put_tool(bound).await;
    catalogue.delete_backend(delete).await.unwrap();
    let rejected = fixture.call("get", json!({"workflowId": "w1"})).await;
    assert_eq!(
        (rejected.status(), code_of(&rejected)),
        (CallStatus::Rejected, "unknown_backend")
    );
    catalogue.put_backend(put).await.unwrap();
    let found = fixture.call("get", json!({"workflowId": "w1"})).await;
    assert_eq!(found.status(), CallStatus::Succeeded);
}

#[tokio::test]
async fn one_plugin_is_returned_by_its_directory() {
    let fixture = Fixture::new().await;
    let mut catalogue = fixture.catalogue.clone();
    let all = catalogue.list_plugins(ListPluginsRequest {}).await.unwrap();
    for plugin in all.into_inner().plugins {
        let request = GetPluginRequest {
            directory: plugin.directory.clone(),
            ..GetPluginRequest::default()
        };
        let found = catalogue.get_plugin(request).await.unwrap().into_inner();
        assert_eq!(found.plugin, Some(plugin));
    }
    let request = GetPluginRequest {
        directory: "none".into(),
        ..GetPluginRequest::default()
    };
    let status = catalogue.get_plugin(request).await.unwrap_err();
    let missing = (Code::NotFound, Some(ErrorReason::PluginNotFound));
    assert_eq!(refusal(&status), missing);
}
