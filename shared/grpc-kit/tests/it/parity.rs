//! One suite, run in process and over a socket.

use std::time::Duration;

use contracts::tavern::common::v1::ErrorReason;
use grpc_kit::{CallContext, Transport};
use tokio_stream::StreamExt;
use tonic::{Code, Request};

use crate::probe::{Client, Forged, Probe, TestServer, services, soon};

/// Runs a case in both ways.
macro_rules! in_both_ways {
    ($($name:ident,)*) => {
        mod in_process {
            $(#[tokio::test]
            async fn $name() {
                telemetry::init_for_tests();
                let probe = super::Probe::default();
                let transport = grpc_kit::local(&super::services(&probe));
                super::soon("the case", super::$name(transport, probe)).await;
            })*
        }
        mod over_a_socket {
            $(#[tokio::test]
            async fn $name() {
                let server = super::TestServer::start(Default::default()).await;
                let case = super::$name(server.transport(), server.probe.clone());
                super::soon("the case", case).await;
            })*
        }
    };
}

in_both_ways! {
    a_call_is_answered,
    a_stream_is_answered_in_order,
    metadata_goes_both_ways,
    rich_errors_arrive,
    an_unknown_method_is_unimplemented,
    a_deadline_is_kept,
    a_deadline_ends_a_stream,
    a_panic_becomes_internal,
    a_panic_in_a_stream_becomes_internal,
    forged_extensions_do_not_arrive,
    dropping_a_call_ends_its_handler,
    dropping_a_stream_ends_its_handler,
    a_call_takes_path_and_deadline_of_its_context_along,
    a_task_of_its_own_keeps_the_context,
    a_context_among_the_extensions_of_a_request_does_not_count,
    messages_are_bounded_in_both_directions,
}

async fn a_call_is_answered(transport: Transport, _: Probe) {
    assert_eq!(
        Client::new(transport).say("echo hello").await.unwrap(),
        "hello"
    );
}

async fn a_stream_is_answered_in_order(transport: Transport, _: Probe) {
    let texts = Client::new(transport).tell("count 1000").await.unwrap();
    let texts: Vec<String> = texts.map(Result::unwrap).collect().await;
    assert_eq!(
        texts,
        (0..1000)
            .map(|number| number.to_string())
            .collect::<Vec<_>>()
    );
}

async fn metadata_goes_both_ways(transport: Transport, _: Probe) {
    let mut client = Client::new(transport);
    let mut request = Request::new("header x-question".to_owned());
    request
        .metadata_mut()
        .insert("x-question", "why".parse().unwrap());
    assert_eq!(client.send(request).await.unwrap().into_inner(), "why");
    let answer = client
        .send(Request::new("trailer".to_owned()))
        .await
        .unwrap();
    assert_eq!(answer.metadata().get("x-answer").unwrap(), "yes");
}

async fn rich_errors_arrive(transport: Transport, _: Probe) {
    let status = Client::new(transport).say("refuse").await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(grpc_kit::reason(&status), Some(ErrorReason::InvalidFields));
    assert_eq!(grpc_kit::violations(&status).len(), 2);
}

async fn an_unknown_method_is_unimplemented(transport: Transport, _: Probe) {
    for path in [
        "/test.v1.Probe/Nothing",
        "/test.v1.Unknown/Say",
        "/test.v1.Probe%2FSay",
    ] {
        let mut grpc = Client::new(transport.clone()).0;
        grpc.ready().await.unwrap();
        let path = path.parse().unwrap();
        let codec = tonic_prost::ProstCodec::<String, String>::default();
        let status = grpc
            .unary(Request::new(String::new()), path, codec)
            .await
            .unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented);
    }
}

async fn a_deadline_is_kept(transport: Transport, probe: Probe) {
    let mut request = Request::new("forever".to_owned());
    request.set_timeout(Duration::from_millis(50));
    let status = Client::new(transport).send(request).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert_eq!(
        grpc_kit::reason(&status),
        Some(ErrorReason::DeadlineExceeded)
    );
    ends(&probe).await;
}

async fn a_deadline_ends_a_stream(transport: Transport, probe: Probe) {
    let mut request = Request::new("forever".to_owned());
    // Enough for the first text to arrive on a busy machine.
    request.set_timeout(Duration::from_secs(3));
    let mut texts = Client::new(transport).tell_with(request).await.unwrap();
    assert_eq!(texts.message().await.unwrap().as_deref(), Some("first"));
    assert_eq!(
        texts.message().await.unwrap_err().code(),
        Code::DeadlineExceeded
    );
    ends(&probe).await;
}

async fn a_panic_becomes_internal(transport: Transport, _: Probe) {
    let mut client = Client::new(transport);
    let status = client.say("panic").await.unwrap_err();
    assert_eq!(status.code(), Code::Internal);
    assert_eq!(grpc_kit::reason(&status), Some(ErrorReason::Internal));
    assert_eq!(grpc_kit::metadata(&status)["trace_id"].len(), 32);
    assert!(!status.message().contains("secret"), "{}", status.message());
    assert_eq!(client.say("echo alive").await.unwrap(), "alive");
}

async fn a_panic_in_a_stream_becomes_internal(transport: Transport, probe: Probe) {
    let mut client = Client::new(transport);
    let mut beside = client.tell("tick").await.unwrap();
    let mut texts = client.tell("panic").await.unwrap();
    assert_eq!(texts.message().await.unwrap().as_deref(), Some("first"));
    let status = texts.message().await.unwrap_err();
    assert_eq!(status.code(), Code::Internal);
    assert!(!status.message().contains("secret"), "{}", status.message());
    // Another stream of the same connection continues.
    for _ in 0..3 {
        assert_eq!(beside.message().await.unwrap().as_deref(), Some("tick"));
    }
    drop(beside);
    ends(&probe).await;
}

async fn forged_extensions_do_not_arrive(transport: Transport, _: Probe) {
    let mut request = Request::new("forged".to_owned());
    request.extensions_mut().insert(Forged);
    let answer = Client::new(transport).send(request).await.unwrap();
    assert_eq!(answer.into_inner(), "false");
}

async fn dropping_a_call_ends_its_handler(transport: Transport, probe: Probe) {
    let mut client = Client::new(transport);
    let call = tokio::spawn(async move { client.say("forever").await });
    crate::probe::until("the handler runs", || running(&probe) == 1).await;
    call.abort();
    ends(&probe).await;
}

async fn dropping_a_stream_ends_its_handler(transport: Transport, probe: Probe) {
    let mut texts = Client::new(transport).tell("forever").await.unwrap();
    texts.message().await.unwrap();
    assert_eq!(running(&probe), 1);
    drop(texts);
    ends(&probe).await;
}

async fn a_call_takes_path_and_deadline_of_its_context_along(transport: Transport, _: Probe) {
    let context = CallContext::outermost().with_timeout(Duration::from_secs(60));
    let context = context.enter("workflow:摘要").unwrap().enter("b").unwrap();
    let mut client = Client::with(&transport, &context);
    assert_eq!(client.say("path").await.unwrap(), "workflow:摘要 > b");
    let left: u64 = client.say("remaining").await.unwrap().parse().unwrap();
    assert!((1..60_000).contains(&left), "{left}");
    let mut texts = client.tell("path").await.unwrap();
    let inside = texts.message().await.unwrap();
    assert_eq!(inside.as_deref(), Some("workflow:摘要 > b"));
    let spent = CallContext::outermost().with_timeout(Duration::ZERO);
    let mut late = Client::with(&transport, &spent);
    let status = late.say("echo late").await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
}

async fn a_task_of_its_own_keeps_the_context(transport: Transport, _: Probe) {
    let context = CallContext::outermost().enter("above").unwrap();
    let mut client = Client::with(&transport, &context);
    let spawned = tokio::spawn(async move { client.say("path").await });
    assert_eq!(spawned.await.unwrap().unwrap(), "above");
}

async fn a_context_among_the_extensions_of_a_request_does_not_count(
    transport: Transport,
    _: Probe,
) {
    let context = CallContext::outermost().enter("of the client").unwrap();
    let mut request = Request::new("path".to_owned());
    request
        .extensions_mut()
        .insert(CallContext::outermost().enter("forged").unwrap());
    let answer = Client::with(&transport, &context).send(request).await;
    assert_eq!(answer.unwrap().into_inner(), "of the client");
}

async fn messages_are_bounded_in_both_directions(transport: Transport, _: Probe) {
    let mut client = Client::new(transport);
    let limit = 4 << 20;
    let large = format!("echo {}", "x".repeat(limit));
    for status in [
        client.say(large).await.unwrap_err(),
        client.say(format!("large {limit}")).await.unwrap_err(),
    ] {
        assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
        assert_eq!(grpc_kit::reason(&status), Some(ErrorReason::LimitExceeded));
        assert_eq!(grpc_kit::metadata(&status)["maximum"], limit.to_string());
    }
    let mut texts = client.tell(format!("large {limit}")).await.unwrap();
    assert_eq!(texts.message().await.unwrap().as_deref(), Some("first"));
    assert_eq!(
        texts.message().await.unwrap_err().code(),
        Code::ResourceExhausted
    );
    let fits = client.say(format!("large {}", limit - 100)).await.unwrap();
    assert_eq!(fits.len(), limit - 100);
}

#[tokio::test]
async fn calls_in_process_that_go_round_do_not_grow_one_stack() {
    let probe = Probe::default();
    let transport = grpc_kit::local(&services(&probe));
    probe.itself.set(transport.clone()).unwrap();
    let mut client = Client::new(transport);
    assert_eq!(client.say("round 200").await.unwrap(), "round");
}

fn running(probe: &Probe) -> usize {
    probe.running.load(std::sync::atomic::Ordering::SeqCst)
}

async fn ends(probe: &Probe) {
    crate::probe::until("the handler has ended", || running(probe) == 0).await;
}

#[tokio::test]
async fn only_a_socket_has_a_peer() {
    let server = TestServer::start(Default::default()).await;
    assert_eq!(server.client().say("peer").await.unwrap(), "true");
    let local = grpc_kit::local(&services(&server.probe));
    assert_eq!(Client::new(local).say("peer").await.unwrap(), "false");
}

#[tokio::test]
async fn merged_services_all_answer_and_what_is_unknown_stays_unimplemented() {
    use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
    let (_reporter, health) = tonic_health::server::health_reporter();
    let both = services(&Probe::default()).merge(grpc_kit::Services::new().add(health));
    let transport = grpc_kit::local(&both);
    assert_eq!(
        Client::new(transport.clone()).say("echo x").await.unwrap(),
        "x"
    );
    let mut health = HealthClient::new(transport.clone().outermost());
    health
        .check(HealthCheckRequest {
            service: String::new(),
        })
        .await
        .unwrap();
    an_unknown_method_is_unimplemented(transport, Probe::default()).await;
}

#[tokio::test]
async fn a_late_transport_is_unavailable_until_it_is_filled() {
    let (transport, slot) = grpc_kit::late();
    let mut client = Client::new(transport);
    let status = client.say("echo x").await.unwrap_err();
    assert_eq!(
        grpc_kit::reason(&status),
        Some(ErrorReason::DependencyUnavailable)
    );
    slot.fill(grpc_kit::local(&services(&Probe::default())));
    assert_eq!(client.say("echo x").await.unwrap(), "x");
}

#[tokio::test]
async fn a_service_that_is_not_there_is_unavailable_and_found_when_it_comes() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let settings = grpc_kit::ClientSettings::to(format!("http://{address}"));
    let mut client = Client::new(grpc_kit::remote(&settings).unwrap());
    let status = client.say("echo x").await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(
        grpc_kit::reason(&status),
        Some(ErrorReason::DependencyUnavailable)
    );
    assert_eq!(grpc_kit::metadata(&status)["service"], "test.v1.Probe");
    assert!(!grpc_kit::may_have_arrived(&status));
    let settings = grpc_kit::ServerSettings {
        listen: address,
        ..Default::default()
    };
    let _server = TestServer::start(settings).await;
    assert_eq!(client.say("echo x").await.unwrap(), "x");
}

#[tokio::test]
async fn a_request_whose_connection_broke_may_have_arrived() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        // The whole request, and then the server is gone.
        let mut read = Vec::new();
        while !read.windows(6).any(|part| part == b"echo x") {
            tokio::io::AsyncReadExt::read_buf(&mut stream, &mut read)
                .await
                .unwrap();
        }
    });
    let settings = grpc_kit::ClientSettings::to(format!("http://{address}"));
    let mut client = Client::new(grpc_kit::remote(&settings).unwrap());
    let status = client.say("echo x").await.unwrap_err();
    server.await.unwrap();
    assert_eq!(
        grpc_kit::reason(&status),
        Some(ErrorReason::DependencyUnavailable)
    );
    assert!(grpc_kit::may_have_arrived(&status));
}

#[tokio::test]
async fn a_request_that_a_closing_connection_drops_has_not_arrived() {
    let settings = grpc_kit::ServerSettings {
        max_connection_age: Duration::from_millis(20),
        ..Default::default()
    };
    let server = TestServer::start(settings).await;
    let mut client = Client::new(server.transport());
    // A stream that is open keeps the connection, which takes nothing new once it is to close.
    let _held = client.tell("forever").await.unwrap();
    let status = loop {
        if let Err(status) = client.say("echo x").await {
            break status;
        }
    };
    assert_eq!(status.code(), Code::Unavailable);
    assert!(!grpc_kit::may_have_arrived(&status), "{status:?}");
    assert_eq!(client.say("echo x").await.unwrap(), "x");
}

#[test]
fn an_address_of_no_use_is_refused() {
    for uri in [
        "",
        "127.0.0.1:1",
        "ftp://127.0.0.1:1",
        "http://",
        "nonsense",
    ] {
        assert!(
            grpc_kit::remote(&grpc_kit::ClientSettings::to(uri)).is_err(),
            "{uri}"
        );
    }
}
