//! The end of a server.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use std::time::Duration;

use contracts::tavern::common::v1::ErrorReason;
use grpc_kit::{ClientSettings, Need, Served, ServerSettings};
use http::uri::PathAndQuery;
use tonic::{Code, Request};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use crate::probe::{TestServer, raw_client, soon};

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
async fn a_draining_server_still_answers_about_runs() {
    let server = TestServer::start(Default::default()).await;
    let mut busy = server.client();
    let held = tokio::spawn(async move { busy.say("gate").await });
    server.running(1).await;
    server.shutdown.drain();
    // A call on a connection from before may still be answered; one on a new connection is not.
    let codec = tonic_prost::ProstCodec::<String, String>::default;
    let refused = soon("the refusal", async {
        loop {
            let mut client = raw_client(&server).await;
            client.ready().await.unwrap();
            let say = PathAndQuery::from_static("/test.v1.Probe/Say");
            let request = Request::new("echo x".to_owned());
            let answer = client.unary(request, say, codec()).await;
            match answer.map_err(|status| (grpc_kit::reason(&status), status)) {
                Err((Some(_), status)) => return status,
                _ => tokio::task::yield_now().await,
            }
        }
    })
    .await;
    assert_eq!(refused.code(), Code::Unavailable);
    assert_eq!(grpc_kit::reason(&refused), Some(ErrorReason::Draining));
    assert!(grpc_kit::retry_after(&refused).is_some());

    let mut client = raw_client(&server).await;
    client.ready().await.unwrap();
    let get_run = PathAndQuery::from_static("/tavern.run.v1.RunService/GetRun");
    let request = Request::new("echo x".to_owned());
    let answer = client.unary(request, get_run, codec()).await.unwrap();
    assert_eq!(answer.into_inner(), "x");

    server.probe.gate.add_permits(1);
    assert_eq!(held.await.unwrap().unwrap(), "passed");
    // Who came since then keeps nothing waiting, although the connection is still there.
    let served = soon("the end", server.served).await.unwrap().unwrap();
    assert_eq!(served.unfinished_connections, 0);
}

#[tokio::test]
async fn a_server_is_ready_while_its_needs_are_met_and_live_whatever_happens() {
    let met = Arc::new(AtomicBool::new(false));
    let asked = met.clone();
    let need = Need::condition("a thing", move || match asked.load(Ordering::SeqCst) {
        true => Ok(()),
        false => Err("is missing".to_owned()),
    });
    let server = TestServer::start_with(Default::default(), |server| server.needs([need])).await;
    let settings = ClientSettings::to(format!("http://{}", server.address));
    assert!(grpc_kit::check_health(&settings).await.is_err());
    assert!(grpc_kit::check_liveness(&settings).await.is_ok());
    met.store(true, Ordering::SeqCst);
    soon("the server to be ready", async {
        while grpc_kit::check_health(&settings).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_server_needs_other_services_to_live() {
    let mut other = TestServer::start(Default::default()).await;
    let need = Need::service("other", other.transport());
    let server = TestServer::start_with(Default::default(), |server| server.needs([need])).await;
    let settings = ClientSettings::to(format!("http://{}", server.address));
    let becomes = async |ready: bool| {
        while grpc_kit::check_health(&settings).await.is_ok() != ready {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon("the server to be ready", becomes(true)).await;
    other.shutdown.abort();
    soon("the other's end", &mut other.served)
        .await
        .unwrap()
        .unwrap();
    soon("the server not to be ready", becomes(false)).await;
}

#[tokio::test]
async fn health_says_so_and_its_watchers_hold_nothing_up() {
    let server = TestServer::start(Default::default()).await;
    let mut health = HealthClient::new(server.transport().outermost());
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
    let mut health = HealthClient::new(server.transport().outermost());
    let answer = health.check(request()).await.unwrap().into_inner();
    assert_eq!(answer.status(), ServingStatus::Serving);
    handle.unwrap().set("test.v1.Probe", false).await;
    let answer = health.check(request()).await.unwrap().into_inner();
    assert_eq!(answer.status(), ServingStatus::NotServing);
    let unknown = HealthCheckRequest {
        service: "test.v1.Unknown".to_owned(),
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

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_made_as_the_end_begins_does_not_hold_it_up() {
    let settings = ServerSettings {
        drain_grace: Duration::from_secs(2),
        ..Default::default()
    };
    for round in 0..50 {
        let server = TestServer::start(settings.clone()).await;
        let mut clients = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let mut client = server.client();
            clients.spawn(async move {
                // The answer does not matter.
                let _ = client.say("echo x").await;
                client
            });
        }
        for _ in 0..round {
            tokio::task::yield_now().await;
        }
        server.shutdown.drain();
        let served = soon("the end", server.served).await.unwrap().unwrap();
        assert_eq!(served.unfinished_connections, 0, "{round}");
        clients.join_all().await;
    }
}
