//! Servers and clients with TLS: who is believed, by whom.

use std::path::PathBuf;

use contracts::tavern::access::v1::Peer;
use grpc_kit::{
    ClientSettings, ServerSettings, Transport,
    tls::{ClientTls, ServerTls},
};
use rcgen::CertificateParams;
use tonic::{Code, Request, Status, client::Grpc, codegen::http::uri::PathAndQuery};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tonic_prost::ProstCodec;

use crate::{
    certificates::{Authority, add_uri, expire, postpone, set_common_name},
    probe::{Client, TestServer, soon},
};

const REGISTRY: &str = "spiffe://tavern.internal/tavern/registry";

pub(crate) fn server((cert, key): (PathBuf, PathBuf)) -> ServerSettings {
    ServerSettings {
        tls: ServerTls {
            cert,
            key,
            ..Default::default()
        },
        ..Default::default()
    }
}

/// The way to a server with TLS for a client who believes a CA.
pub(crate) fn client(server: &TestServer, tls: ClientTls) -> Transport {
    let settings = ClientSettings {
        uri: format!("https://{}", server.address),
        tls,
    };
    grpc_kit::remote(&settings).unwrap()
}

pub(crate) fn believing(authority: &Authority) -> ClientTls {
    ClientTls {
        ca: authority.ca(),
        ..Default::default()
    }
}

fn proving(authority: &Authority, (cert, key): (PathBuf, PathBuf)) -> ClientTls {
    ClientTls {
        cert,
        key,
        ..believing(authority)
    }
}

async fn say(transport: Transport) -> Result<String, Status> {
    soon("an answer", Client::new(transport).say("echo x")).await
}

/// Calls a method that the contract allows the gateway, and no other service.
async fn cancel_run(transport: &Transport) -> Result<String, Status> {
    let mut grpc = Grpc::new(transport.outermost());
    grpc.ready().await?;
    let path = PathAndQuery::from_static("/tavern.run.v1.RunService/CancelRun");
    let request = Request::new("echo x".to_owned());
    let answered = grpc.unary(request, path, ProstCodec::<String, String>::default());
    soon("an answer", answered)
        .await
        .map(|answer| answer.into_inner())
}

#[tokio::test]
async fn a_call_over_tls_is_answered_as_one_without() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new(directory.path());
    let server = TestServer::start(server(authority.issue("server", |_| ()))).await;
    let transport = client(&server, believing(&authority));
    let mut client = Client::new(transport);
    assert_eq!(client.say("echo x").await.unwrap(), "x");
    let mut texts = client.tell("count 1000").await.unwrap();
    let mut count = 0;
    while texts.message().await.unwrap().is_some() {
        count += 1;
    }
    assert_eq!(count, 1000);
    assert_eq!(client.say("large 3000000").await.unwrap().len(), 3_000_000);
}

#[tokio::test]
async fn a_client_believes_no_server_of_another_ca_or_name_or_time() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new(directory.path());
    let stranger = Authority::new(&directory.path().join("stranger"));
    let expect = |name: &str| ClientTls {
        name: name.to_owned(),
        ..believing(&authority)
    };
    type Leaf = (PathBuf, PathBuf);
    let usual: Leaf = authority.issue("usual", |params| add_uri(params, REGISTRY));
    let cases: [(&str, Leaf, ClientTls); 7] = [
        ("another CA", usual.clone(), believing(&stranger)),
        ("another host", usual.clone(), expect("tavern.example.com")),
        (
            "another service",
            usual.clone(),
            expect("spiffe://tavern.internal/tavern/workflow"),
        ),
        (
            "another domain",
            usual.clone(),
            expect("spiffe://elsewhere.internal/tavern/registry"),
        ),
        (
            "no URI",
            authority.issue("nameless", |_| ()),
            expect(REGISTRY),
        ),
        ("ended", authority.issue("ended", expire), expect("")),
        ("to come", authority.issue("to-come", postpone), expect("")),
    ];
    for (case, leaf, tls) in cases {
        let server = TestServer::start(server(leaf)).await;
        let status = say(client(&server, tls)).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable, "{case}: {status}");
        assert!(
            status.message().contains("is not trusted"),
            "{case}: {status}"
        );
        assert!(!grpc_kit::may_have_arrived(&status), "{case}");
    }
    let server = TestServer::start(server(usual)).await;
    for tls in [expect(""), expect("localhost"), expect(REGISTRY)] {
        assert_eq!(say(client(&server, tls)).await.unwrap(), "x");
    }
}

/// A server that only services call.
async fn of_services(authority: &Authority) -> TestServer {
    let mut settings = server(authority.service("registry"));
    settings.tls.peer_ca = authority.ca();
    TestServer::start(settings).await
}

#[tokio::test]
async fn a_service_is_the_one_that_its_certificate_names() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new(directory.path());
    let server = of_services(&authority).await;
    let gateway = client(&server, proving(&authority, authority.service("gateway")));
    let workflow = client(&server, proving(&authority, authority.service("workflow")));

    assert_eq!(cancel_run(&gateway).await.unwrap(), "x");
    let stating = gateway.clone().of_peer(Peer::Gateway);
    assert_eq!(cancel_run(&stating).await.unwrap(), "x");
    // A call of a program itself is one of the service, and a name that it states proves nothing.
    for transport in [
        gateway.of_peer(Peer::AgentRuntime),
        workflow.of_peer(Peer::Gateway),
    ] {
        let status = cancel_run(&transport).await.unwrap_err();
        assert_eq!(status.code(), Code::Unauthenticated, "{status}");
    }
}

#[tokio::test]
async fn a_caller_without_a_certificate_may_only_check_the_health() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new(directory.path());
    let server = of_services(&authority).await;
    let transport = client(&server, believing(&authority));
    let stated = transport.clone().of_peer(Peer::Gateway);
    for transport in [&transport, &stated] {
        let status = cancel_run(transport).await.unwrap_err();
        assert_eq!(status.code(), Code::Unauthenticated, "{status}");
    }
    let mut health = HealthClient::new(transport.outermost());
    let answer = health.check(HealthCheckRequest::default()).await.unwrap();
    assert_eq!(answer.into_inner().status, 1);
}

#[tokio::test]
async fn a_certificate_that_names_no_service_of_the_domain_is_refused_in_the_handshake() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new(directory.path());
    let stranger = Authority::new(&directory.path().join("stranger"));
    let server = of_services(&authority).await;
    type Change = fn(&mut CertificateParams);
    let cases: [(&str, &Authority, Change); 8] = [
        ("another CA", &stranger, |params| {
            add_uri(params, "spiffe://tavern.internal/tavern/gateway")
        }),
        ("no URI", &authority, |_| ()),
        ("a common name", &authority, |params| {
            set_common_name(params, "spiffe://tavern.internal/tavern/gateway")
        }),
        ("another domain", &authority, |params| {
            add_uri(params, "spiffe://elsewhere.internal/tavern/gateway")
        }),
        ("no service", &authority, |params| {
            add_uri(params, "spiffe://tavern.internal/tavern/visitor")
        }),
        ("two services", &authority, |params| {
            add_uri(params, "spiffe://tavern.internal/tavern/gateway");
            add_uri(params, "spiffe://tavern.internal/tavern/registry");
        }),
        ("ended", &authority, |params| {
            add_uri(params, "spiffe://tavern.internal/tavern/gateway");
            expire(params);
        }),
        ("to come", &authority, |params| {
            add_uri(params, "spiffe://tavern.internal/tavern/gateway");
            postpone(params);
        }),
    ];
    for (case, issuer, change) in cases {
        let leaf = issuer.issue("caller", change);
        let transport = client(&server, proving(&authority, leaf));
        let status = cancel_run(&transport).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable, "{case}: {status}");
    }
}
