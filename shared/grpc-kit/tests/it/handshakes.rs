//! Handshakes of clients that are slow or weak.

use std::{
    net::{Ipv4Addr, SocketAddr},
    process::{Output, Stdio},
    time::Duration,
};

use grpc_kit::{ConnectionBounds, ServerSettings};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    process::Command,
    task::JoinSet,
};

use crate::{
    certificates::Authority,
    probe::{Client, TestServer, soon},
    tls::{believing, client, server},
};

/// The first bytes of a handshake with TLS: the beginning of a record that says hello.
const HELLO: [u8; 64] = {
    let mut hello = [0; 64];
    (hello[0], hello[1], hello[2]) = (0x16, 0x03, 0x01);
    (hello[3], hello[4], hello[5]) = (0x02, 0x00, 0x01);
    hello
};

/// Sends one byte a second until the server closes the connection.
async fn dawdle(mut stream: TcpStream) {
    let (mut reading, mut writing) = stream.split();
    let mut buffer = [0; 16];
    let write = async {
        for byte in HELLO {
            if writing.write_all(&[byte]).await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        std::future::pending().await
    };
    tokio::select! { () = write => {} _ = reading.read(&mut buffer) => {} }
}

/// Connects from one of eight addresses of this machine, as no single peer may have so many connections.
async fn connect(number: u8, to: SocketAddr) -> TcpStream {
    let from = Ipv4Addr::new(127, 0, 1, 1 + number % 8);
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((from, 0).into()).unwrap();
    socket.connect(to).await.unwrap()
}

#[tokio::test]
async fn handshakes_of_one_byte_a_second_end_and_leave_room_for_others() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new(directory.path());
    let leaf = authority.issue("server", |_| ());
    // The bound is shorter than the default of 10 s.
    let settings = ServerSettings {
        connection: ConnectionBounds {
            handshake: Duration::from_secs(2),
            ..Default::default()
        },
        ..server(leaf)
    };
    let server = TestServer::start(settings).await;
    let mut crowd = JoinSet::new();
    for number in 0..500_u32 {
        let stream = connect((number % 256) as u8, server.address).await;
        crowd.spawn(dawdle(stream));
    }
    for _ in 0..20 {
        // Each has a connection of its own.
        let mut client = Client::new(client(&server, believing(&authority)));
        let answer = soon("an answer beside the crowd", client.say("echo x")).await;
        assert_eq!(answer.unwrap(), "x");
    }
    while let Some(ended) = soon("the end of a handshake", crowd.join_next()).await {
        ended.unwrap();
    }
}

/// Shakes hands as OpenSSL does with `arguments`.
async fn openssl(server: &TestServer, arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new("openssl");
    let address = server.address.to_string();
    command.args(["s_client", "-connect", &address]);
    command.args(arguments).kill_on_drop(true);
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = piped.stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).await.unwrap();
    drop(stdin);
    soon("the end of openssl", child.wait_with_output())
        .await
        .unwrap()
}

fn text(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&text).into_owned()
}

/// The weakest that OpenSSL offers.
const WEAKEST: &str = "ALL:COMPLEMENTOFALL:@SECLEVEL=0";

#[tokio::test]
async fn openssl_is_answered_in_tls_1_3_alone_unless_a_setting_allows_1_2() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new(directory.path());
    let leaf = authority.issue("server", |_| ());
    let ca = authority.ca();
    let ca = ca.to_str().unwrap();
    let mut settings = server(leaf);
    let strict = TestServer::start(settings.clone()).await;
    settings.tls.allow_tls12 = true;
    let lenient = TestServer::start(settings).await;

    let weak_suite = |suite: &'static str| vec!["-tls1_2", "-cipher", suite];
    for (arguments, of_strict, of_lenient) in [
        (vec!["-tls1_3"], true, true),
        (vec!["-tls1_2"], false, true),
        (vec!["-tls1_1", "-cipher", WEAKEST], false, false),
        (vec!["-tls1", "-cipher", WEAKEST], false, false),
        (weak_suite("AES128-SHA:@SECLEVEL=0"), false, false),
        (weak_suite("AES256-GCM-SHA384:@SECLEVEL=0"), false, false),
        (
            weak_suite("ECDHE-ECDSA-AES128-SHA:@SECLEVEL=0"),
            false,
            false,
        ),
        (
            weak_suite("ECDHE-ECDSA-AES128-SHA256:@SECLEVEL=0"),
            false,
            false,
        ),
        (weak_suite("aNULL:eNULL:@SECLEVEL=0"), false, false),
        (vec!["-tls1_2", "-curves", "secp521r1"], false, false),
    ] {
        for (server, accepted) in [(&strict, of_strict), (&lenient, of_lenient)] {
            let verified = [
                "-CAfile",
                ca,
                "-verify_return_error",
                "-verify_ip",
                "127.0.0.1",
            ];
            let arguments = [&verified[..], &arguments].concat();
            let output = openssl(server, &arguments, "").await;
            assert_eq!(
                output.status.success(),
                accepted,
                "{arguments:?}: {}",
                text(&output)
            );
        }
    }
}

#[tokio::test]
async fn a_client_that_renegotiates_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new(directory.path());
    let mut settings = server(authority.issue("server", |_| ()));
    settings.tls.allow_tls12 = true;
    let server = TestServer::start(settings).await;
    // A line of `R` makes OpenSSL renegotiate.
    let output = openssl(&server, &["-tls1_2"], "R\n").await;
    let text = text(&output);
    assert!(text.contains("RENEGOTIATING"), "{text}");
    assert!(!output.status.success(), "{text}");
}
