//! Certificates that change while a server serves.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use grpc_kit::{ConnectionBounds, ServerSettings, Transport};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tokio::{net::TcpStream, task::JoinSet};
use tokio_rustls::TlsConnector;
use tonic::Code;
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

use crate::{
    certificates::Authority,
    probe::{Client, TestServer, soon, until},
    tls::{believing, client, server},
};

/// The settings of a server that looks at its files often.
fn watchful(leaf: (PathBuf, PathBuf)) -> ServerSettings {
    ServerSettings {
        connection: ConnectionBounds {
            certificates: Duration::from_millis(5),
            ..Default::default()
        },
        ..server(leaf)
    }
}

/// The status of the certificates.
async fn health_of_certificates(transport: &Transport) -> i32 {
    let mut health = HealthClient::new(transport.outermost());
    let request = HealthCheckRequest {
        service: "tls".to_owned(),
    };
    health.check(request).await.unwrap().into_inner().status
}

const SERVING: i32 = 1;
const NOT_SERVING: i32 = 2;

/// Waits until a new connection of a client who believes only `authority` is answered or refused.
async fn until_answered(server: &TestServer, authority: &Authority, answered: bool) {
    soon("the new certificate", async {
        loop {
            let mut client = Client::new(client(server, believing(authority)));
            match client.say("echo x").await {
                Ok(_) if answered => return,
                Err(status) if !answered => {
                    assert_eq!(status.code(), Code::Unavailable);
                    return;
                }
                _ => tokio::time::sleep(Duration::from_millis(2)).await,
            }
        }
    })
    .await;
}

/// Waits until a new connection gets the leaf in a file.
async fn until_leaf(server: &TestServer, authority: &Authority, file: &Path) {
    let expected = CertificateDer::from_pem_file(file).unwrap();
    let mut roots = RootCertStore::empty();
    let ca = CertificateDer::from_pem_slice(authority.pem().as_bytes());
    roots.add(ca.unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let connector = TlsConnector::from(Arc::new(config));
    soon("the new leaf", async {
        loop {
            let tcp = TcpStream::connect(server.address).await.unwrap();
            let name = ServerName::try_from("localhost").unwrap();
            let stream = connector.connect(name, tcp).await.unwrap();
            let (_, session) = stream.get_ref();
            if session.peer_certificates().unwrap()[0] == expected {
                return;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}

async fn until_health(transport: &Transport, expected: i32) {
    soon("the health of the certificates", async {
        while health_of_certificates(transport).await != expected {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_leaf_that_is_replaced_is_in_force_for_new_connections_and_open_ones_go_on() {
    let directory = tempfile::tempdir().unwrap();
    let first = Authority::new(&directory.path().join("first"));
    let second = Authority::new(&directory.path().join("second"));
    // As secrets are mounted: the files are links into a directory that a link names, and that link is replaced.
    let (current, mounted) = (
        directory.path().join("current"),
        directory.path().join("mounted"),
    );
    fs::create_dir(&mounted).unwrap();
    first.issue("server", |_| ());
    second.issue("server", |_| ());
    symlink(&first.directory, &current).unwrap();
    let files = ["server.pem", "server.key"].map(|name| {
        let link = mounted.join(name);
        symlink(current.join(name), &link).unwrap();
        link
    });
    let [cert, key] = files;
    let server = TestServer::start(watchful((cert, key))).await;
    let open = client(&server, believing(&first));
    let mut open = Client::new(open);
    let mut stream = open.tell("tick").await.unwrap();

    switch(&current, &second.directory);
    until_answered(&server, &second, true).await;
    until_answered(&server, &first, false).await;
    assert_eq!(open.say("echo x").await.unwrap(), "x");
    for _ in 0..3 {
        assert!(soon("a tick", stream.message()).await.unwrap().is_some());
    }
}

/// Points a link elsewhere, in one step.
fn switch(link: &Path, target: &Path) {
    let next = link.with_extension("next");
    symlink(target, &next).unwrap();
    fs::rename(next, link).unwrap();
}

#[tokio::test]
async fn unfit_files_leave_the_earlier_leaf_in_force_and_show_in_the_health() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new(directory.path());
    let (cert, key) = authority.issue("server", |_| ());
    let (other_cert, other_key) = authority.issue("other", |_| ());
    let [good, other] = [&cert, &other_cert].map(|file| fs::read(file).unwrap());
    let server = TestServer::start(watchful((cert.clone(), key.clone()))).await;
    let transport = client(&server, believing(&authority));
    until_health(&transport, SERVING).await;
    let cut = good[..good.len() / 2].to_vec();
    for bad in [b"".to_vec(), b"nonsense".to_vec(), cut, other.clone()] {
        fs::write(&cert, &bad).unwrap();
        until_health(&transport, NOT_SERVING).await;
        until_answered(&server, &authority, true).await;
        fs::write(&cert, &good).unwrap();
        until_health(&transport, SERVING).await;
    }
    fs::remove_file(&key).unwrap();
    until_health(&transport, NOT_SERVING).await;
    until_answered(&server, &authority, true).await;
    // The rest of the pair, whose first part was there already.
    fs::write(&cert, &other).unwrap();
    fs::copy(&other_key, &key).unwrap();
    until_health(&transport, SERVING).await;
}

#[tokio::test]
async fn two_cas_overlap_in_one_file() {
    let directory = tempfile::tempdir().unwrap();
    let old = Authority::new(&directory.path().join("old"));
    let new = Authority::new(&directory.path().join("new"));
    fs::write(old.ca(), format!("{}{}", old.pem(), new.pem())).unwrap();
    for leaf in [old.issue("server", |_| ()), new.issue("server", |_| ())] {
        let server = TestServer::start(server(leaf)).await;
        until_answered(&server, &old, true).await;
    }
}

/// The numbers of renewals, of streams, and of calls in flight.
fn size() -> (u32, usize, usize) {
    match std::env::var_os("TAVERN_TEST_RENEWALS") {
        Some(_) => (100, 200, 8),
        None => (10, 20, 2),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn renewals_under_load_fail_no_call_and_a_bad_pair_between_them_none_either() {
    let (renewals, streams, callers) = size();
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new(directory.path());
    let (cert, key) = authority.issue("server", |_| ());
    let server = Arc::new(TestServer::start(watchful((cert.clone(), key.clone()))).await);
    let done = Arc::new(AtomicBool::new(false));
    let answered = Arc::new(AtomicU64::new(0));
    let mut load = JoinSet::new();
    let shared = client(&server, believing(&authority));
    for number in 0..streams {
        let (done, answered) = (done.clone(), answered.clone());
        let mut client = Client::new(shared.clone());
        load.spawn(async move {
            let mut stream = client.tell("tick").await.unwrap();
            while !done.load(Ordering::Relaxed) {
                assert!(stream.message().await.unwrap().is_some(), "stream {number}");
                answered.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    for _ in 0..callers {
        let (done, answered, server) = (done.clone(), answered.clone(), Arc::clone(&server));
        let tls = believing(&authority);
        load.spawn(async move {
            while !done.load(Ordering::Relaxed) {
                // A new connection for every tenth call.
                let mut client = Client::new(client(&server, tls.clone()));
                for _ in 0..10 {
                    assert_eq!(client.say("echo x").await.unwrap(), "x");
                    answered.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(25)).await;
                }
            }
        });
    }
    for renewal in 0..renewals {
        if renewal == renewals / 2 {
            fs::write(&cert, "nonsense").unwrap();
            until_health(&shared, NOT_SERVING).await;
        }
        let (next, next_key) = authority.issue("next", |_| ());
        fs::rename(next_key, &key).unwrap();
        fs::rename(next, &cert).unwrap();
        until_leaf(&server, &authority, &cert).await;
    }
    done.store(true, Ordering::Relaxed);
    while let Some(ended) = soon("the end of the load", load.join_next()).await {
        ended.unwrap();
    }
    assert!(answered.load(Ordering::Relaxed) > 0);
    until("the streams ended", || {
        server.probe.running.load(Ordering::SeqCst) == 0
    })
    .await;
}
