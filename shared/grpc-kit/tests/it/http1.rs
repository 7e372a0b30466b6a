//! gRPC and plain HTTP on one port.

use axum::routing::get;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

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
async fn without_a_router_only_http2_is_spoken() {
    let server = TestServer::start(Default::default()).await;
    let answer = ask(
        &server,
        "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
    )
    .await;
    assert!(!answer.contains("200"), "{answer}");
}
