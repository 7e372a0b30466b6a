//! Whose trace a call belongs to.

use grpc_kit::{ServerSettings, TraceTrust};
use telemetry::spans;
use tonic::Request;
use tracing::Instrument;

use crate::probe::{Client, Probe, TestServer, services};

#[tokio::test]
async fn the_trace_of_the_caller_is_continued_in_process_and_from_this_machine() {
    let server = TestServer::start(Default::default()).await;
    let span = spans::execute_tool("x");
    let trace = telemetry::context::trace_id(&span);
    for transport in [
        server.transport(),
        grpc_kit::local(&services(&Probe::default())),
    ] {
        let mut client = Client::new(transport);
        let inside = client.say("trace").instrument(span.clone()).await.unwrap();
        assert_eq!(inside, trace);
    }
}

#[tokio::test]
async fn a_peer_that_is_not_trusted_gets_a_trace_of_its_own() {
    let settings = ServerSettings {
        trace_trust: TraceTrust::None,
        ..Default::default()
    };
    let server = TestServer::start(settings).await;
    let span = spans::execute_tool("x");
    let trace = telemetry::context::trace_id(&span);
    let inside = server.client().say("trace").instrument(span).await.unwrap();
    assert_eq!(inside.len(), 32);
    assert_ne!(inside, trace);
}

#[tokio::test]
async fn a_call_outside_spans_begins_a_trace_whatever_its_metadata_says() {
    let server = TestServer::start(Default::default()).await;
    let mut request = Request::new("trace".to_owned());
    let forged = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    request
        .metadata_mut()
        .insert("traceparent", forged.parse().unwrap());
    let inside = server.client().send(request).await.unwrap().into_inner();
    assert_eq!(inside.len(), 32);
    assert!(!forged.contains(&inside));
}
