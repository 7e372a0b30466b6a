//! Servers that other hosts reach: their needs, and the clients whom they believe.

use std::{
    net::SocketAddr,
    sync::{Arc, OnceLock},
};

use core_types::{Principal, Reach};
use futures::{FutureExt, future::BoxFuture};
use grpc_kit::{
    Admission, BindError, Callers, Door, Exposed, Health, Knock, ServeError, Server,
    ServerSettings, Shutdown,
};
use settings::Problems;
use tokio::net::TcpListener;
use tonic::{Code, Request, Status};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

use crate::{
    certificates::Authority,
    probe::{Client, Probe, TestServer, services},
    tls::{believing, client, server},
};

/// A door that admits everyone as `local`, as that of an installation without keys does.
#[derive(Debug)]
struct Open;

impl Door for Open {
    fn admit<'a>(&'a self, _: Knock<'a>) -> BoxFuture<'a, Result<Admission, Status>> {
        let admission = Admission {
            principal: Principal::LOCAL,
            key_id: None,
            reach: Reach::Tenant,
            ended: None,
            held: None,
        };
        std::future::ready(Ok(admission)).boxed()
    }
}

fn everywhere() -> SocketAddr {
    ([0, 0, 0, 0], 0).into()
}

#[tokio::test]
async fn an_address_beyond_this_machine_needs_tls() {
    let settings = ServerSettings {
        listen: everywhere(),
        ..Default::default()
    };
    let error = grpc_kit::bind(&settings).await.unwrap_err();
    assert!(matches!(error, BindError::Exposed(Exposed::Unencrypted(_))));
    assert!(
        error.to_string().contains("tls.terminated_by_proxy"),
        "{error}"
    );

    // A listener that was made elsewhere is refused as well.
    let listener = TcpListener::bind(everywhere()).await.unwrap();
    let server = Server::new(settings, services(&Probe::default())).door(Arc::new(Open));
    let (shutdown, _handle) = Shutdown::manual();
    let error = server.serve(listener, shutdown).await.unwrap_err();
    assert!(matches!(error, ServeError::Exposed(_)));
}

#[tokio::test]
async fn an_address_beyond_this_machine_that_services_call_needs_their_proof() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new(directory.path());
    let mut settings = server(authority.service("registry"));
    settings.listen = everywhere();
    let problems = |settings: &ServerSettings| {
        let mut problems = Problems::default();
        settings.check("server", Callers::Services, &mut problems);
        !problems.is_empty()
    };
    assert!(problems(&settings));
    let listener = grpc_kit::bind(&settings).await.unwrap();
    let unproven = Server::new(settings.clone(), services(&Probe::default()));
    let (shutdown, _handle) = Shutdown::manual();
    let error = unproven.serve(listener, shutdown).await.unwrap_err();
    assert!(matches!(error, ServeError::Exposed(Exposed::Unproven(_))));

    settings.tls.peer_ca = authority.ca();
    assert!(!problems(&settings));
    TestServer::start(settings).await;
}

#[tokio::test]
async fn a_client_of_this_machine_is_local_at_an_exposed_server_without_keys() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new(directory.path());
    let mut settings = server(authority.issue("server", |_| ()));
    settings.listen = everywhere();
    let mut server = TestServer::start_with(settings, |server| server.door(Arc::new(Open))).await;
    server.address = SocketAddr::from(([127, 0, 0, 1], server.address.port()));
    let mut client = Client::new(client(&server, believing(&authority)));
    assert_eq!(client.say("echo x").await.unwrap(), "x");
}

/// A server behind a proxy at 127.0.0.1.
async fn proxied() -> TestServer {
    let mut settings = ServerSettings {
        max_streams_per_peer: 1,
        ..Default::default()
    };
    settings.tls.terminated_by_proxy = vec!["127.0.0.1".to_owned()];
    TestServer::start_with(settings, |server| server.door(Arc::new(Named))).await
}

/// A door that admits a client with a credential by a name, and every other one as `local`.
#[derive(Debug)]
struct Named;

impl Door for Named {
    fn admit<'a>(&'a self, knock: Knock<'a>) -> BoxFuture<'a, Result<Admission, Status>> {
        let principal = match knock.headers.contains_key("authorization") {
            true => Principal::new("default/someone").unwrap(),
            false => Principal::LOCAL,
        };
        let admission = Admission {
            principal,
            key_id: None,
            reach: Reach::Tenant,
            ended: None,
            held: None,
        };
        std::future::ready(Ok(admission)).boxed()
    }
}

fn from(client: &'static str, text: &str) -> Request<String> {
    let mut request = Request::new(text.to_owned());
    let metadata = request.metadata_mut();
    metadata.insert("authorization", "Bearer x".parse().unwrap());
    metadata.insert("x-forwarded-for", client.parse().unwrap());
    request
}

#[tokio::test]
async fn behind_a_proxy_limits_go_by_the_client() {
    let server = proxied().await;
    let mut client = server.client();
    let mut first = client
        .tell_with(from("192.0.2.1", "forever"))
        .await
        .unwrap();
    first.message().await.unwrap();
    let second = client.tell_with(from("192.0.2.1", "forever")).await;
    assert_eq!(second.unwrap_err().code(), Code::ResourceExhausted);
    // Addresses that a client writes itself stand before the one that its proxy appends.
    let forged = from("198.51.100.7, 192.0.2.1", "forever");
    let forged = client.tell_with(forged).await;
    assert_eq!(forged.unwrap_err().code(), Code::ResourceExhausted);
    let mut other = client
        .tell_with(from("192.0.2.2", "forever"))
        .await
        .unwrap();
    other.message().await.unwrap();
}

#[tokio::test]
async fn behind_a_proxy_no_client_is_local_wherever_it_claims_to_be() {
    let server = proxied().await;
    let mut client = server.client();
    for claimed in ["", "127.0.0.1", "::1", "10.0.0.1", "nonsense"] {
        let mut request = Request::new("echo x".to_owned());
        if !claimed.is_empty() {
            let metadata = request.metadata_mut();
            metadata.insert("x-forwarded-for", claimed.parse().unwrap());
        }
        let status = client.send(request).await.unwrap_err();
        assert_eq!(status.code(), Code::Unauthenticated, "{claimed}: {status}");
    }
    assert_eq!(
        client
            .send(from("192.0.2.1", "echo x"))
            .await
            .unwrap()
            .into_inner(),
        "x"
    );
}

#[tokio::test]
async fn the_health_of_parts_is_hidden_from_clients_of_other_hosts() {
    let status = async |server: &TestServer, client: &'static str, service: &str| {
        let mut health = HealthClient::new(server.transport().outermost());
        let service = service.to_owned();
        let mut request = Request::new(HealthCheckRequest { service });
        let metadata = request.metadata_mut();
        metadata.insert("x-forwarded-for", client.parse().unwrap());
        health
            .check(request)
            .await
            .map(|answer| answer.into_inner().status)
    };
    let health: OnceLock<Health> = OnceLock::new();
    let with_part = |server: Server| {
        let _ = health.set(server.health());
        server.door(Arc::new(Open))
    };
    let mut settings = ServerSettings::default();
    settings.tls.terminated_by_proxy = vec!["127.0.0.1".to_owned()];
    let far = TestServer::start_with(settings, with_part).await;
    let health = health.get().unwrap();
    health.set("plugin/broken", false).await;
    for (name, is_shown) in [
        ("", true),
        ("live", true),
        ("test.v1.Probe", true),
        ("plugin/broken", false),
        ("plugin/absent", false),
    ] {
        let answer = status(&far, "192.0.2.1", name).await;
        match is_shown {
            true => assert_eq!(answer.unwrap(), 1, "{name}"),
            false => assert_eq!(answer.unwrap_err().code(), Code::NotFound, "{name}"),
        }
    }
}
