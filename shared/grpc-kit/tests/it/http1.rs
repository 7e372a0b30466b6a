//! gRPC and plain HTTP on one port.

use std::sync::atomic::{AtomicUsize, Ordering};

use axum::routing::get;
use futures::StreamExt;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
};
use tower::ServiceExt;

use crate::probe::{TestServer, soon};

async fn ask(server: &TestServer, request: &str) -> String {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    let _ = soon("the answer", stream.read_to_string(&mut answer)).await;
    answer
}

#[tokio::test]
async fn a_router_answers_what_is_no_grpc() {
    async fn fail() -> &'static str {
        panic!("the secret of the page")
    }
    let router = axum::Router::new().route("/page", get(|| async { "a page" }));
    let router = router.route("/panic", get(fail));
    let server = TestServer::start_with(Default::default(), |server| server.http(router)).await;
    let page = ask(
        &server,
        "GET /page HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
    )
    .await;
    assert!(
        page.starts_with("HTTP/1.1 200") && page.ends_with("a page"),
        "{page}"
    );
    let none = ask(
        &server,
        "GET /none HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
    )
    .await;
    assert!(none.starts_with("HTTP/1.1 404"), "{none}");
    let broken = ask(
        &server,
        "GET /panic HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
    )
    .await;
    assert!(
        broken.starts_with("HTTP/1.1 500") && !broken.contains("secret"),
        "{broken}"
    );
    assert_eq!(server.client().say("echo x").await.unwrap(), "x");
}

#[tokio::test]
async fn grpc_is_not_served_over_http1() {
    let router = axum::Router::new().route("/page", get(|| async { "a page" }));
    let server = TestServer::start_with(Default::default(), |server| server.http(router)).await;
    let body = "\0\0\0\0\x08\x0a\x06echo x";
    let length = body.len();
    for kind in ["application/grpc", "application/grpc+proto"] {
        let request = format!(
            "POST /test.v1.Probe/Say HTTP/1.1\r\nhost: attacker.example\r\nte: trailers\r\n\
             content-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
        );
        let answer = ask(&server, &request).await;
        assert!(answer.starts_with("HTTP/1.1 415"), "{answer}");
    }
    assert_eq!(server.probe.begun.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn only_grpc_that_no_browser_sends_reaches_a_handler() {
    let server = TestServer::start(Default::default()).await;
    let grpc = "application/grpc";
    for (kind, header, status) in [
        (grpc, None, 200),
        ("application/grpc+proto", None, 200),
        ("application/grpc;charset=utf-8", None, 200),
        ("application/grpc-web", None, 415),
        ("application/grpc-web+proto", None, 415),
        ("application/grpc-web-text", None, 415),
        ("application/grpcx", None, 415),
        ("application/json", None, 415),
        (grpc, Some(("origin", "http://attacker.example")), 415),
        (grpc, Some(("origin", "null")), 415),
        (grpc, Some(("origin", "http://127.0.0.1:7401")), 415),
        (grpc, Some(("sec-fetch-site", "same-origin")), 415),
        (grpc, Some(("sec-fetch-mode", "cors")), 415),
    ] {
        let begun = server.probe.begun.load(Ordering::SeqCst);
        let message = bytes::Bytes::from_static(b"\0\0\0\0\x08\x0a\x06echo x");
        let mut request = http::Request::post("/test.v1.Probe/Say")
            .header("content-type", kind)
            .header("te", "trailers");
        if let Some((name, value)) = header {
            request = request.header(name, value);
        }
        let body = tonic::body::Body::new(http_body_util::Full::new(message));
        let response = server
            .transport()
            .outermost()
            .oneshot(request.body(body).unwrap());
        let response = soon("the answer", response).await.unwrap();
        assert_eq!(response.status(), status, "{kind} {header:?}");
        let reached = server.probe.begun.load(Ordering::SeqCst) - begun;
        assert_eq!(reached, usize::from(status == 200), "{kind} {header:?}");
    }
}

#[tokio::test]
async fn s507_what_services_say_in_headers_is_removed_from_requests_of_clients() {
    async fn of_services(headers: http::HeaderMap) -> String {
        let names = headers
            .keys()
            .filter(|name| name.as_str().starts_with("tavern"));
        names
            .map(http::HeaderName::as_str)
            .collect::<Vec<_>>()
            .join(" ")
    }
    let router = axum::Router::new().route("/names", get(of_services));
    let server = TestServer::start_with(Default::default(), |server| server.http(router)).await;
    for (name, value) in [
        ("tavern-call-depth", "9"),
        ("tavern-call-depth", "many"),
        ("tavern-call-path", "%"),
        ("tavern-call-path", "turn_1,flow_2"),
        ("tavern-effect-id", "e1"),
        ("tavern-anything", "else"),
    ] {
        for (asked, answer) in [("path".to_owned(), ""), (format!("header {name}"), "")] {
            let mut request = tonic::Request::new(asked);
            let forged = value.parse().unwrap();
            request.metadata_mut().insert(name, forged);
            let answered = server.client().send(request).await.unwrap();
            assert_eq!(answered.into_inner(), answer, "{name}: {value}");
        }
        let page = ask(
            &server,
            &format!(
                "GET /names HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{name}: {value}\r\n\r\n"
            ),
        )
        .await;
        assert!(page.ends_with("\r\n\r\n"), "{name}: {value}: {page}");
    }
}

#[tokio::test]
async fn without_a_router_only_http2_is_spoken() {
    let server = TestServer::start(Default::default()).await;
    let answer = ask(
        &server,
        "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
    )
    .await;
    assert!(!answer.contains("200"), "{answer}");
}

#[tokio::test]
async fn a_peer_that_does_not_read_is_sent_little() {
    const PIECE: usize = 64 << 10;
    static MADE: AtomicUsize = AtomicUsize::new(0);
    let pieces = || {
        futures::stream::iter(0..128).map(|_| {
            MADE.fetch_add(PIECE, Ordering::SeqCst);
            Ok::<_, std::convert::Infallible>(vec![b'x'; PIECE])
        })
    };
    let page = get(move || async move { axum::body::Body::from_stream(pieces()) });
    let router = axum::Router::new().route("/page", page);
    let server = TestServer::start_with(Default::default(), |server| server.http(router)).await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4 << 10).unwrap();
    let mut peer = socket.connect(server.address).await.unwrap();
    let request = b"GET /page HTTP/1.1\r\nhost: x\r\n\r\n";
    peer.write_all(request).await.unwrap();
    soon("the first byte", peer.read_u8()).await.unwrap();
    // The number of made bytes stops growing while others are served.
    let mut client = server.client();
    let mut made = 0;
    while made != MADE.load(Ordering::SeqCst) {
        made = MADE.load(Ordering::SeqCst);
        for _ in 0..100 {
            client.say("echo x").await.unwrap();
        }
    }
    assert!(made <= 512 << 10, "{made} bytes were made");
}
