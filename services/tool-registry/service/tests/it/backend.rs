//! Methods of gRPC servers, called by their reflection. The server here is a real one on a socket:
//! the double of the workflow service, which has every shape of field.

use std::{net::SocketAddr, time::Duration};

use contracts::tavern::{
    common::v1::{CallStatus, ErrorCategory, run_event::Kind},
    registry::v1::{CallToolRequest, PutBackendRequest, call_tool_response::Record},
    run::v1::run_service_server::RunServiceServer,
    workflow::v1::workflow_service_server::WorkflowServiceServer,
};
use futures::StreamExt;
use grpc_kit::{Server, ServerSettings, Services, Shutdown, ShutdownHandle};
use serde_json::{Value, json};
use tonic::Code;

use crate::{
    doubles::workflow::PlayedWorkflows,
    fixture::{Fixture, code_of, finish, with_effect},
};

pub(crate) struct Backend {
    pub(crate) address: SocketAddr,
    pub(crate) workflows: PlayedWorkflows,
    shutdown: ShutdownHandle,
}

pub(crate) async fn serve() -> Backend {
    serve_with(ServerSettings::default()).await
}

async fn serve_with(settings: ServerSettings) -> Backend {
    let settings = ServerSettings {
        listen: ([127, 0, 0, 1], 0).into(),
        ..settings
    };
    let listener = grpc_kit::bind(&settings).await.unwrap();
    let address = listener.local_addr().unwrap();
    let workflows = PlayedWorkflows::default();
    workflows.put("w1", json!({"name": "first"}));
    let services = Services::new()
        .add(WorkflowServiceServer::new(workflows.clone()))
        .add(RunServiceServer::new(workflows.clone()));
    let (shutdown, handle) = Shutdown::manual();
    tokio::spawn(Server::new(settings, services).serve(listener, shutdown));
    Backend {
        address,
        workflows,
        shutdown: handle,
    }
}

pub(crate) fn flows(backend: &Backend) -> PutBackendRequest {
    PutBackendRequest {
        name: "flows".into(),
        endpoint: format!("http://{}", backend.address),
        ..Default::default()
    }
}

pub(crate) async fn register(fixture: &Fixture, backend: &Backend) -> Vec<String> {
    fixture
        .catalogue
        .clone()
        .put_backend(flows(backend))
        .await
        .unwrap()
        .into_inner()
        .backend
        .unwrap()
        .methods
}

pub(crate) fn tool(id: &str, method: &str) -> Value {
    json!({"id": id, "parameters": {"type": "object", "additionalProperties": true},
           "implementation": {"type": "service", "service": "flows",
                              "method": format!("tavern.workflow.v1.WorkflowService/{method}")}})
}

#[tokio::test]
async fn a_servers_methods_are_found_and_called_with_json() {
    let (fixture, backend) = (Fixture::new().await, serve().await);
    let methods = register(&fixture, &backend).await;
    assert!(methods.contains(&"tavern.workflow.v1.WorkflowService/GetWorkflow".to_owned()));
    assert!(!methods.iter().any(|method| method.starts_with("grpc.")));
    fixture.put_tool(tool("get", "GetWorkflow")).await;
    fixture.put_tool(tool("start", "StartRun")).await;
    let output = fixture
        .output("c", "get", json!({"workflowId": "w1"}))
        .await;
    assert_eq!(output["workflow"]["name"], "first");
    let arguments = json!({"node": {"fullType": "core:Echo"}, "inputs_json": "{}",
                           "options": {"timeout": "1.5s", "durability": "DURABILITY_MEMORY"}});
    fixture.output("c", "start", arguments).await;
    let started = backend.workflows.started.lock().unwrap()[0].clone();
    assert_eq!(
        started.options.unwrap().timeout.unwrap(),
        prost_types::Duration {
            seconds: 1,
            nanos: 500_000_000
        }
    );
}

#[tokio::test]
async fn r308_a_backend_that_renews_its_connections_leaves_no_call_in_doubt() {
    const CALLS: usize = 400;
    let fixture = Fixture::new().await;
    let backend = serve_with(ServerSettings {
        max_connection_age: Duration::from_millis(10),
        ..ServerSettings::default()
    })
    .await;
    // Reading the services of the server takes a stream, which the end of its connection cuts off.
    let mut catalogue = fixture.catalogue.clone();
    while catalogue.put_backend(flows(&backend)).await.is_err() {}
    let mut watch = tool("watch", "");
    watch["implementation"]["method"] = json!("tavern.run.v1.RunService/WatchRun");
    fixture.put_tool(watch).await;
    fixture.put_tool(tool("start", "StartRun")).await;
    let hold = json!({"workflowId": "hold", "inputsJson": "{}"});
    let held = fixture.output("c", "start", hold).await["run"]["runId"].clone();
    let calls = futures::stream::iter(0..CALLS).map(|number| {
        // Calls that stay open keep the connections on which nothing new is taken.
        if number % 10 == 0 {
            let watches = with_effect(&format!("held{number}"), "watch", json!({"runId": held}));
            tokio::spawn(finish(fixture.calls.clone(), watches));
        }
        let start = json!({"workflowId": "w1", "inputsJson": "{}"});
        fixture.finish(with_effect(&format!("e{number}"), "start", start))
    });
    let results: Vec<_> = calls
        .buffer_unordered(8)
        .map(|ended| ended.1)
        .collect()
        .await;
    let ends = |status: CallStatus| {
        results
            .iter()
            .filter(move |result| result.status() == status)
    };
    let taken = ends(CallStatus::Succeeded).count();
    assert_eq!(backend.workflows.started.lock().unwrap().len(), 1 + taken);
    let refused = ends(CallStatus::Failed).filter(|end| code_of(end) == "backend_unreachable");
    assert_eq!(taken + refused.count(), CALLS, "{results:?}");
}

#[tokio::test]
async fn each_message_of_a_stream_is_seen_when_it_comes_and_the_result_has_them_all() {
    let (fixture, backend) = (Fixture::new().await, serve().await);
    register(&fixture, &backend).await;
    let mut watch = tool("watch", "");
    watch["implementation"]["method"] = json!("tavern.run.v1.RunService/WatchRun");
    fixture.put_tool(watch).await;
    fixture.put_tool(tool("start", "StartRun")).await;
    let hold = json!({"workflowId": "hold", "inputsJson": "{}"});
    let started = fixture.output("c", "start", hold).await;
    let run = json!({"runId": started["run"]["runId"]});
    let request = with_effect("e1", "watch", run);
    let stream = fixture.calls.clone().call_tool(request).await.unwrap();
    let (mut stream, mut lines) = (stream.into_inner(), String::new());
    // The run ends only after both of its events were seen.
    let result = loop {
        match stream.next().await.unwrap().unwrap().record.unwrap() {
            Record::Event(event) => match event.kind.unwrap() {
                Kind::OutputChunk(chunk) => {
                    assert_eq!((chunk.offset, chunk.json_lines), (lines.len() as u64, true));
                    lines.push_str(&chunk.text);
                }
                kind => panic!("{kind:?}"),
            },
            Record::Result(result) => break result,
        }
        if lines.lines().count() == 2 {
            backend.workflows.let_go();
        }
    };
    let output: Vec<Value> = serde_json::from_str(&result.output_json).unwrap();
    let shown: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!((output.len(), &output), (3, &shown));
    assert_eq!(output[1]["record"]["event"]["nodeStarted"]["nodeId"], "n1");
}

#[tokio::test]
async fn the_effect_id_the_conversation_the_trace_and_the_deadline_reach_the_server() {
    let (fixture, backend) = (Fixture::new().await, serve().await);
    register(&fixture, &backend).await;
    fixture.put_tool(tool("get", "GetWorkflow")).await;
    fixture
        .finish(CallToolRequest {
            conversation_id: "c-1".into(),
            ..with_effect("e-7", "get", json!({"workflowId": "w1"}))
        })
        .await;
    let seen = backend.workflows.seen.lock().unwrap().clone();
    assert!(
        seen.contains(&("tavern-effect-id".into(), "e-7".into())),
        "{seen:?}"
    );
    assert!(
        seen.contains(&("tavern-conversation-id".into(), "c-1".into())),
        "{seen:?}"
    );
    assert!(
        seen.iter()
            .any(|(key, value)| key == "traceparent" && value.len() == 55),
        "{seen:?}"
    );
    assert!(
        seen.iter().any(|(key, _)| key == "grpc-timeout"),
        "{seen:?}"
    );
}

#[tokio::test]
async fn arguments_that_do_not_fit_the_message_are_refused_all_at_once() {
    let (fixture, backend) = (Fixture::new().await, serve().await);
    register(&fixture, &backend).await;
    fixture.put_tool(tool("start", "StartRun")).await;
    let arguments = json!({"workflow_id": "w", "definition_json": "{}", "optionz": {}, "inputs_json": 5,
                           "options": {"durability": "DURABILITY_FOREVER", "timeout": 3}});
    let result = fixture.call("start", arguments).await;
    assert_eq!(result.status(), CallStatus::Rejected);
    let violations = result.error.unwrap().violations;
    let pointers: Vec<&str> = violations
        .iter()
        .map(|violation| violation.pointer.as_str())
        .collect();
    assert_eq!(
        pointers,
        [
            "/definition_json",
            "/optionz",
            "/inputs_json",
            "/options/durability",
            "/options/timeout"
        ]
    );
    assert_eq!(violations[1].suggestions, ["options"]);
}

#[tokio::test]
async fn a_servers_refusal_is_a_typed_failure() {
    let (fixture, backend) = (Fixture::new().await, serve().await);
    register(&fixture, &backend).await;
    fixture.put_tool(tool("get", "GetWorkflow")).await;
    fixture.put_tool(tool("put", "PutWorkflow")).await;
    let missing = fixture.call("get", json!({"workflowId": "none"})).await;
    assert_eq!(
        (missing.status(), code_of(&missing)),
        (CallStatus::Failed, "backend_not_found")
    );
    assert_eq!(missing.error.unwrap().category(), ErrorCategory::Domain);
    let definition = json!({"workflowId": "w1", "definitionJson": "{}"});
    assert_eq!(
        code_of(&fixture.call("put", definition).await),
        "backend_unimplemented"
    );
}

#[tokio::test]
async fn a_server_is_kept_over_a_restart_and_need_not_be_there() {
    let (mut fixture, backend) = (Fixture::new().await, serve().await);
    register(&fixture, &backend).await;
    fixture.put_tool(tool("get", "GetWorkflow")).await;
    fixture.crash_and_restart().await;
    fixture
        .output("c", "get", json!({"workflowId": "w1"}))
        .await;
    backend.shutdown.abort();
    let mut result = fixture.call("get", json!({"workflowId": "w1"})).await;
    for _ in 0..200 {
        if code_of(&result) == "backend_unreachable" {
            break;
        }
        result = fixture.call("get", json!({"workflowId": "w1"})).await;
    }
    let error = result.error.unwrap();
    assert_eq!(
        (error.code.as_str(), error.retryable),
        ("backend_unreachable", true)
    );
    assert_eq!(error.category(), ErrorCategory::Dependency);
}

#[tokio::test]
async fn a_server_that_does_not_answer_in_time_leaves_the_effect_unknown_unless_it_may_be_repeated()
{
    let fixture = Fixture::new().await;
    let silent = silent_server().await;
    let mut declared = tool("safe", "GetWorkflow");
    declared["idempotent"] = json!(true);
    let backend = serve().await;
    register(&fixture, &backend).await;
    fixture.put_tool(tool("effect", "GetWorkflow")).await;
    fixture.put_tool(declared).await;
    // The methods are known already; from now on the name stands for a server that never answers.
    point_to(&fixture, silent).await;
    for (id, status) in [
        ("effect", CallStatus::InDoubt),
        ("safe", CallStatus::Failed),
    ] {
        let request = CallToolRequest {
            timeout: prost_types::Duration::try_from(Duration::from_secs(1)).ok(),
            ..with_effect(id, id, json!({"workflowId": "w1"}))
        };
        let (_, result) = finish(fixture.calls.clone(), request).await.unwrap();
        assert_eq!(
            (result.status(), code_of(&result)),
            (status, "deadline_exceeded")
        );
    }
}

/// Registers a server that answers reflection and whose methods never answer.
async fn point_to(fixture: &Fixture, address: SocketAddr) {
    let request = PutBackendRequest {
        name: "flows".into(),
        endpoint: format!("http://{address}"),
        ..Default::default()
    };
    fixture
        .catalogue
        .clone()
        .put_backend(request)
        .await
        .unwrap();
}

/// Holds every call for ever; reflection does not pass through it.
#[derive(Clone)]
struct Never;

impl tower::Service<http::Request<tonic::body::Body>> for Never {
    type Response = http::Response<tonic::body::Body>;
    type Error = std::convert::Infallible;
    type Future = std::future::Pending<Result<Self::Response, Self::Error>>;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Self::Error>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Request<tonic::body::Body>) -> Self::Future {
        std::future::pending()
    }
}

impl tonic::server::NamedService for Never {
    const NAME: &'static str = "tavern.workflow.v1.WorkflowService";
}

async fn silent_server() -> SocketAddr {
    let settings = ServerSettings {
        listen: ([127, 0, 0, 1], 0).into(),
        ..ServerSettings::default()
    };
    let listener = grpc_kit::bind(&settings).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (shutdown, handle) = Shutdown::manual();
    tokio::spawn(async move {
        let _alive = handle;
        Server::new(settings, Services::new().add(Never))
            .serve(listener, shutdown)
            .await
    });
    address
}

#[tokio::test]
async fn a_server_that_only_speaks_the_older_reflection_is_understood() {
    let fixture = Fixture::new().await;
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(contracts::FILE_DESCRIPTOR_SET)
        .build_v1alpha()
        .unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let incoming = tokio_stream::wrappers::TcpListenerStream::new(listener);
    tokio::spawn(
        tonic::transport::Server::builder()
            .add_service(reflection)
            .serve_with_incoming(incoming),
    );
    let request = PutBackendRequest {
        name: "old".into(),
        endpoint: format!("http://{address}"),
        ..Default::default()
    };
    let methods = fixture
        .catalogue
        .clone()
        .put_backend(request)
        .await
        .unwrap()
        .into_inner()
        .backend
        .unwrap()
        .methods;
    assert!(
        methods.contains(&"tavern.workflow.v1.WorkflowService/StartRun".to_owned()),
        "{methods:?}"
    );
}

#[tokio::test]
async fn an_address_that_is_none_and_a_server_that_is_not_there_are_refused() {
    let fixture = Fixture::new().await;
    let free = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    for (name, endpoint, code) in [
        ("x", "not a url".to_owned(), Code::InvalidArgument),
        ("x", "ftp://127.0.0.1:1".to_owned(), Code::InvalidArgument),
        ("x", "unix:///etc/passwd".to_owned(), Code::InvalidArgument),
        ("x", "unix:/etc/passwd".to_owned(), Code::InvalidArgument),
        (
            "x",
            "http://169.254.169.254".to_owned(),
            Code::InvalidArgument,
        ),
        (
            "x",
            format!("http://{free}@example.com"),
            Code::InvalidArgument,
        ),
        ("builtin", format!("http://{free}"), Code::InvalidArgument),
        ("", format!("http://{free}"), Code::InvalidArgument),
        ("x", format!("http://{free}"), Code::Unavailable),
    ] {
        let request = PutBackendRequest {
            name: name.into(),
            endpoint: endpoint.clone(),
            ..Default::default()
        };
        let registered = fixture.catalogue.clone().put_backend(request).await;
        let status = registered.unwrap_err();
        assert_eq!(status.code(), code, "{name} {endpoint}: {status}");
    }
}

/// Registers tools of a server whose stored address then leads to another one.
pub(crate) async fn register_led_to(
    fixture: &Fixture,
    address: SocketAddr,
    tools: &[(&str, bool)],
) {
    let proxy = reflection_then(address).await;
    let request = PutBackendRequest {
        name: "led".into(),
        endpoint: format!("http://{}", proxy.address),
        ..Default::default()
    };
    fixture
        .catalogue
        .clone()
        .put_backend(request)
        .await
        .unwrap();
    for (id, idempotent) in tools {
        let mut led = tool(id, "GetWorkflow");
        led["implementation"]["service"] = json!("led");
        led["idempotent"] = json!(idempotent);
        fixture.put_tool(led).await;
    }
    proxy.switched.send_replace(true);
}

/// Leads connections to a real server first and, once switched, to another address.
struct Proxy {
    address: SocketAddr,
    switched: tokio::sync::watch::Sender<bool>,
    _backend: Backend,
}

async fn reflection_then(later: SocketAddr) -> Proxy {
    let backend = serve().await;
    let first = backend.address;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let switched = tokio::sync::watch::Sender::new(false);
    let receiver = switched.subscribe();
    tokio::spawn(async move {
        while let Ok((mut inward, _)) = listener.accept().await {
            let mut receiver = receiver.clone();
            tokio::spawn(async move {
                let already = *receiver.borrow();
                let target = if already { later } else { first };
                let mut outward = tokio::net::TcpStream::connect(target).await.unwrap();
                let copy = tokio::io::copy_bidirectional(&mut inward, &mut outward);
                tokio::select! {
                    _ = copy => {}
                    _ = receiver.wait_for(|switched| *switched), if !already => {}
                }
            });
        }
    });
    Proxy {
        address,
        switched,
        _backend: backend,
    }
}
