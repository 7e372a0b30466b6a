//! Limits on calls and streams.

use std::time::Duration;

use contracts::tavern::common::v1::ErrorReason;
use futures::stream;
use grpc_kit::{Callers, FailureClass, ServerSettings};
use http::{HeaderValue, uri::PathAndQuery};
use http_body_util::{BodyExt, StreamBody};
use settings::Problems;
use tokio_stream::StreamExt;
use tonic::{Code, Request, body::Body};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
    server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
};
use tower::{Service, ServiceExt};

use crate::probe::{Client, TestServer, raw_client, services, soon};

#[tokio::test]
async fn a_call_without_a_deadline_gets_the_servers() {
    let settings = ServerSettings {
        call_timeout: Duration::from_millis(50),
        ..Default::default()
    };
    let server = TestServer::start(settings).await;
    let status = soon("the refusal", server.client().say("forever"))
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    server.running(0).await;
}

#[tokio::test]
async fn a_callers_longer_deadline_does_not_extend_the_servers() {
    let settings = ServerSettings {
        call_timeout: Duration::from_millis(50),
        ..Default::default()
    };
    let server = TestServer::start(settings).await;
    let mut request = Request::new("forever".to_owned());
    request.set_timeout(Duration::from_secs(3_600));
    let status = soon("the refusal", server.client().send(request))
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
}

#[tokio::test]
async fn a_deadline_that_is_not_one_is_refused() {
    let server = TestServer::start(Default::default()).await;
    for wrong in [
        "",
        "5",
        "S",
        "-5S",
        "1.5S",
        "123456789S",
        "5s",
        "5 S",
        "forever",
    ] {
        let mut request = Request::new("echo x".to_owned());
        let value = HeaderValue::from_static(wrong);
        request
            .metadata_mut()
            .as_mut()
            .insert("grpc-timeout", value);
        let mut client = raw_client(&server).await;
        client.ready().await.unwrap();
        let say = PathAndQuery::from_static("/test.v1.Probe/Say");
        let codec = tonic_prost::ProstCodec::<String, String>::default();
        let status = client.unary(request, say, codec).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{wrong}");
        let field = &grpc_kit::violations(&status)[0].0;
        assert_eq!(field, "metadata.grpc-timeout", "{wrong}");
    }
    assert_eq!(
        server.probe.begun.load(std::sync::atomic::Ordering::SeqCst),
        0
    );
}

#[tokio::test]
async fn a_service_with_a_lower_limit_of_messages_names_it() {
    let services = services(&Default::default()).max_request_message("test.v1.Probe", 1_000);
    let mut client = Client::new(grpc_kit::local(&services));
    let status = client.say("x".repeat(2_000)).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(grpc_kit::reason(&status), Some(ErrorReason::LimitExceeded));
    assert_eq!(grpc_kit::metadata(&status)["maximum"], "1000");
}

#[tokio::test]
async fn a_method_can_have_its_own_limit() {
    let settings = ServerSettings {
        call_timeout: Duration::from_millis(20),
        ..Default::default()
    };
    let services =
        services(&Default::default()).method_timeout("test.v1.Probe/Say", Duration::from_secs(60));
    let mut client = Client::new(grpc_kit::local_with(&services, &settings));
    assert_eq!(client.say("wait 100").await.unwrap(), "waited");
}

/// Follows a stream to its end, which is the deadline's, and returns the message of its status.
async fn end_of_stream(word: &str, idle: Duration, limit: Duration) -> String {
    let settings = ServerSettings {
        stream_idle_timeout: idle,
        stream_timeout: limit,
        ..Default::default()
    };
    let server = TestServer::start(settings).await;
    let texts = server.client().tell(word).await.unwrap();
    let texts: Vec<_> = soon("the end", texts.collect()).await;
    let (last, before) = texts.split_last().unwrap();
    assert!(before.iter().all(Result::is_ok));
    let status = last.as_ref().unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    server.running(0).await;
    status.message().to_owned()
}

#[tokio::test]
async fn a_silent_stream_ends_and_a_lively_one_goes_on_until_its_limit() {
    let short = Duration::from_millis(200);
    let message = end_of_stream("forever", short, Duration::from_secs(3_600)).await;
    assert!(message.contains("silent for 200ms"), "{message}");

    // It ticks a hundred times as often as it must, so a busy machine does not make it silent.
    let (idle, limit) = (Duration::from_secs(1), Duration::from_millis(2_500));
    let message = end_of_stream("tick", idle, limit).await;
    assert!(!message.contains("silent"), "{message}");
}

#[tokio::test]
async fn a_request_body_that_never_ends_is_given_up() {
    let settings = ServerSettings {
        call_timeout: Duration::from_millis(100),
        ..Default::default()
    };
    let server = TestServer::start(settings).await;
    let body = Body::new(StreamBody::new(
        stream::pending::<Result<_, tonic::Status>>(),
    ));
    let request = http::Request::post("/test.v1.Probe/Say")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(body)
        .unwrap();
    let mut transport = server.transport().outermost();
    let response = soon("the refusal", async {
        transport.ready().await.unwrap();
        transport.call(request).await.unwrap()
    })
    .await;
    assert_eq!(response.headers()["grpc-status"], "4");
}

#[tokio::test]
async fn a_message_that_is_only_claimed_is_refused_at_its_head() {
    let server = TestServer::start(Default::default()).await;
    let head = bytes::Bytes::from_static(&[0, 0x7f, 0xff, 0xff, 0xff]);
    let claimed = stream::iter([Ok::<_, tonic::Status>(http_body::Frame::data(head))]);
    let body = Body::new(StreamBody::new(futures::StreamExt::chain(
        claimed,
        stream::pending(),
    )));
    let request = http::Request::post("/test.v1.Probe/Say")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(body)
        .unwrap();
    let mut transport = server.transport().outermost();
    let response = soon("the refusal", async {
        transport.ready().await.unwrap();
        transport.call(request).await.unwrap()
    })
    .await;
    assert_eq!(response.headers()["grpc-status"], "8");
    let _ = response.into_body().collect().await;
}

#[tokio::test]
async fn a_busy_server_sheds_calls_and_still_tells_its_health() {
    let settings = ServerSettings {
        max_calls: 1,
        ..Default::default()
    };
    let server = TestServer::start(settings).await;
    let mut busy = server.client();
    let held = tokio::spawn(async move { busy.say("forever").await });
    server.running(1).await;
    let status = server.client().say("echo x").await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(grpc_kit::reason(&status), Some(ErrorReason::Overloaded));
    assert!(grpc_kit::retry_after(&status).is_some());
    let mut health = HealthClient::new(server.transport().outermost());
    health
        .check(HealthCheckRequest {
            service: "test.v1.Probe".to_owned(),
        })
        .await
        .unwrap();
    held.abort();
    server.running(0).await;
    assert_eq!(server.client().say("echo x").await.unwrap(), "x");
}

#[tokio::test]
async fn a_stream_holds_its_place_until_it_ends() {
    let settings = ServerSettings {
        max_streams: 1,
        ..Default::default()
    };
    let server = TestServer::start(settings).await;
    let mut client = server.client();
    let mut held = client.tell("forever").await.unwrap();
    held.message().await.unwrap();
    let status = client.tell("count 1").await.unwrap_err();
    assert_eq!(grpc_kit::reason(&status), Some(ErrorReason::Overloaded));
    assert_eq!(client.say("echo x").await.unwrap(), "x");
    drop(held);
    server.running(0).await;
    assert!(client.tell("count 1").await.is_ok());
}

#[tokio::test]
async fn the_streams_of_one_connection_leave_room_for_a_call() {
    let server = TestServer::start(Default::default()).await;
    let mut grpc = raw_client(&server).await;
    let tell = PathAndQuery::from_static("/test.v1.Probe/Tell");
    let say = PathAndQuery::from_static("/test.v1.Probe/Say");
    let codec = tonic_prost::ProstCodec::<String, String>::default;
    let mut held = Vec::new();
    for _ in 0..192 {
        grpc.ready().await.unwrap();
        let request = Request::new("forever".to_owned());
        let texts = grpc.server_streaming(request, tell.clone(), codec()).await;
        held.push(texts.unwrap());
    }
    for _ in 0..100 {
        grpc.ready().await.unwrap();
        let request = Request::new("forever".to_owned());
        let texts = grpc.server_streaming(request, tell.clone(), codec()).await;
        let status = texts.unwrap_err();
        assert_eq!(grpc_kit::reason(&status), Some(ErrorReason::Overloaded));
        let limit = &grpc_kit::metadata(&status)["limit"];
        assert_eq!(limit, "max_streams_per_connection");
    }
    let request = Request::new("echo x".to_owned());
    grpc.ready().await.unwrap();
    let answer = soon("the call", grpc.unary(request, say, codec())).await;
    assert_eq!(answer.unwrap().into_inner(), "x");
}

#[tokio::test]
async fn the_streams_of_one_peer_leave_room_for_other_peers() {
    let settings = ServerSettings {
        max_streams_per_peer: 2,
        ..Default::default()
    };
    let server = TestServer::start(settings).await;
    let (mut first, mut second) = (server.client(), server.client());
    let held = (
        first.tell("forever").await.unwrap(),
        second.tell("forever").await.unwrap(),
    );
    let status = server.client().tell("count 1").await.unwrap_err();
    assert_eq!(grpc_kit::metadata(&status)["limit"], "max_streams_per_peer");
    // Other services retry, instead of giving up their work.
    assert_eq!(FailureClass::of(&status), FailureClass::Transient);
    drop(held);
    server.running(0).await;
    assert!(server.client().tell("count 1").await.is_ok());
}

#[tokio::test]
async fn many_calls_of_one_client_do_not_keep_the_next_waiting() {
    let server = TestServer::start(Default::default()).await;
    let client = server.client();
    let calls: Vec<_> = (0..300)
        .map(|_| {
            let mut client = Client(client.0.clone());
            tokio::spawn(async move { client.say("forever").await })
        })
        .collect();
    server.running(300).await;
    let mut last = Client(client.0);
    let answer = soon("one more call", last.say("echo x")).await;
    assert_eq!(answer.unwrap(), "x");
    calls.iter().for_each(tokio::task::JoinHandle::abort);
    server.running(0).await;
}

#[tokio::test]
async fn a_list_of_headers_beyond_the_limit_is_refused() {
    let server = TestServer::start(Default::default()).await;
    let mut client = server.client();
    let mut request = Request::new("echo x".to_owned());
    let large = HeaderValue::from_str(&"x".repeat(17 << 10)).unwrap();
    request.metadata_mut().as_mut().insert("x-large", large);
    assert!(client.send(request).await.is_err());
    assert_eq!(client.say("echo x").await.unwrap(), "x");
}

#[tokio::test]
async fn calls_nested_too_deep_are_refused_by_the_server() {
    let server = TestServer::start(Default::default()).await;
    let mut request = Request::new("echo x".to_owned());
    request
        .metadata_mut()
        .insert("tavern-call-depth", "9".parse().unwrap());
    let status = server.client().send(request).await.unwrap_err();
    assert_eq!(grpc_kit::reason(&status), Some(ErrorReason::DepthExceeded));
}

#[tokio::test]
async fn reflection_lists_what_is_served_in_both_versions() {
    let server = TestServer::start(Default::default()).await;
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut client = ServerReflectionClient::new(server.transport().outermost());
    let answers = client
        .server_reflection_info(stream::iter([request]))
        .await
        .unwrap();
    let answer = answers.into_inner().message().await.unwrap().unwrap();
    let Some(MessageResponse::ListServicesResponse(list)) = answer.message_response else {
        panic!("{answer:?}");
    };
    let mut names: Vec<String> = list
        .service
        .into_iter()
        .map(|service| service.name)
        .collect();
    names.sort();
    assert_eq!(
        names,
        [
            "grpc.health.v1.Health",
            "grpc.reflection.v1.ServerReflection",
            "tavern.run.v1.RunService",
            "test.v1.Probe"
        ]
    );
    let mut old =
        tonic_reflection::pb::v1alpha::server_reflection_client::ServerReflectionClient::new(
            server.transport().outermost(),
        );
    let nothing = stream::empty::<tonic_reflection::pb::v1alpha::ServerReflectionRequest>();
    assert!(old.server_reflection_info(nothing).await.is_ok());
}

#[tokio::test]
async fn reflection_describes_the_details_of_errors() {
    let server = TestServer::start(Default::default()).await;
    for symbol in [
        "google.rpc.ErrorInfo",
        "google.rpc.BadRequest",
        "google.rpc.RetryInfo",
    ] {
        let request = ServerReflectionRequest {
            host: String::new(),
            message_request: Some(MessageRequest::FileContainingSymbol(symbol.to_owned())),
        };
        let mut client = ServerReflectionClient::new(server.transport().outermost());
        let answers = client.server_reflection_info(stream::iter([request])).await;
        let answer = answers.unwrap().into_inner().message().await.unwrap();
        let described = answer.unwrap().message_response;
        assert!(
            matches!(described, Some(MessageResponse::FileDescriptorResponse(_))),
            "{symbol}: {described:?}"
        );
    }
}

#[tokio::test]
async fn reflection_can_be_off() {
    let settings = ServerSettings {
        reflection: grpc_kit::Reflection::Off,
        ..Default::default()
    };
    let server = TestServer::start(settings).await;
    let mut client = ServerReflectionClient::new(server.transport().outermost());
    let status = client
        .server_reflection_info(stream::empty())
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
}

#[test]
fn no_limit_can_be_switched_off() {
    let mut problems = Problems::default();
    ServerSettings::default().check("server", Callers::Clients, &mut problems);
    assert!(problems.is_empty(), "{problems:?}");
    let settings = ServerSettings {
        listen: "0.0.0.0:7401".parse().unwrap(),
        max_connections: 0,
        max_request_message: 0,
        call_timeout: Duration::ZERO,
        ..Default::default()
    };
    settings.check("server", Callers::Clients, &mut problems);
    let text = format!("{problems:?}");
    for key in [
        "listen",
        "max_connections",
        "max_request_message",
        "call_timeout",
    ] {
        assert!(
            text.contains(&format!("\"server.{key}\"")),
            "{key} in {text}"
        );
    }
}
