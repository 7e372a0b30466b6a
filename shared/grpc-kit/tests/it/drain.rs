//! The end of a server.

use std::time::Duration;

use grpc_kit::{Served, ServerSettings};
use tonic::Code;
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use crate::probe::{TestServer, soon};

fn request() -> HealthCheckRequest {
    HealthCheckRequest {
        service: "test.v1.Probe".to_owned(),
    }
}

#[tokio::test]
async fn what_was_begun_is_finished_and_nothing_new_begins() {
    let server = TestServer::start(Default::default()).await;
    let mut client = server.client();
    let mut inflight = server.client();
    let begun = tokio::spawn(async move { inflight.say("gate").await });
    let mut texts = client.tell("drain").await.unwrap();
    assert_eq!(texts.message().await.unwrap().as_deref(), Some("first"));
    server.running(2).await;

    server.shutdown.drain();
    assert_eq!(
        soon("the record", texts.message())
            .await
            .unwrap()
            .as_deref(),
        Some("drain")
    );
    assert_eq!(texts.message().await.unwrap(), None);
    server.probe.gate.add_permits(1);
    assert_eq!(begun.await.unwrap().unwrap(), "passed");
    let served = soon("the end", server.served).await.unwrap().unwrap();
    assert_eq!(
        served,
        Served {
            unfinished_connections: 0
        }
    );
    let status = client.say("echo x").await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
}

#[tokio::test]
async fn health_says_so_and_its_watchers_hold_nothing_up() {
    let server = TestServer::start(Default::default()).await;
    let mut health = HealthClient::new(server.transport());
    let mut watch = health.watch(request()).await.unwrap().into_inner();
    let first = watch.message().await.unwrap().unwrap();
    assert_eq!(first.status(), ServingStatus::Serving);
    server.shutdown.drain();
    let second = soon("the change", watch.message()).await.unwrap().unwrap();
    assert_eq!(second.status(), ServingStatus::NotServing);
    let status = soon("the end of the watch", watch.message())
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    let served = soon("the end", server.served).await.unwrap().unwrap();
    assert_eq!(served.unfinished_connections, 0);
}

#[tokio::test]
async fn a_service_can_say_that_it_cannot_serve() {
    let mut handle = None;
    let server = TestServer::start_with(Default::default(), |server| {
        handle = Some(server.health());
        server
    })
    .await;
    let mut health = HealthClient::new(server.transport());
    let answer = health.check(request()).await.unwrap().into_inner();
    assert_eq!(answer.status(), ServingStatus::Serving);
    handle.unwrap().set("test.v1.Probe", false).await;
    let answer = health.check(request()).await.unwrap().into_inner();
    assert_eq!(answer.status(), ServingStatus::NotServing);
    let unknown = HealthCheckRequest {
        service: "test.v1.Nobody".to_owned(),
    };
    assert_eq!(
        health.check(unknown).await.unwrap_err().code(),
        Code::NotFound
    );
}

#[tokio::test]
async fn what_does_not_finish_in_time_is_cut() {
    let settings = ServerSettings {
        drain_grace: Duration::from_millis(100),
        ..Default::default()
    };
    let server = TestServer::start(settings).await;
    let mut texts = server.client().tell("forever").await.unwrap();
    texts.message().await.unwrap();
    server.shutdown.drain();
    let probe = server.probe.clone();
    let served = soon("the end", server.served).await.unwrap().unwrap();
    assert_eq!(
        served,
        Served {
            unfinished_connections: 1
        }
    );
    assert!(texts.message().await.is_err());
    crate::probe::until("the handler has ended", || {
        probe.running.load(std::sync::atomic::Ordering::SeqCst) == 0
    })
    .await;
}

#[tokio::test]
async fn a_second_request_to_end_waits_for_nothing() {
    let server = TestServer::start(Default::default()).await;
    let mut texts = server.client().tell("forever").await.unwrap();
    texts.message().await.unwrap();
    server.shutdown.drain();
    server.shutdown.abort();
    let served = soon("the end", server.served).await.unwrap().unwrap();
    assert_eq!(served.unfinished_connections, 1);
}
