//! Exports, held against a receiver of OTLP.
//!
//! Telemetry is set up once per process, so the exporting program is this test binary again, with
//! its endpoint in a variable.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    process::Command,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use http::{HeaderMap, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use telemetry::{LogFormat, TelemetrySettings, spans};
use tonic::{body::Body, server::NamedService};
use tower::Service;

const ENDPOINT: &str = "TELEMETRY_TEST_ENDPOINT";

/// Exports when its variable is set; as an ordinary test it only checks that it is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_child_exports_only_when_asked() {
    let Ok(endpoint) = std::env::var(ENDPOINT) else {
        return;
    };
    let settings = TelemetrySettings {
        otlp_endpoint: Some(endpoint),
        log_format: LogFormat::Json,
        log_filter: "trace".to_owned(),
        metric_interval: Duration::from_millis(100),
        ..TelemetrySettings::default()
    };
    let guard = telemetry::init(&settings, "telemetry-test", "1.2.3").unwrap();
    assert!(telemetry::init(&settings, "again", "1").is_err());
    telemetry::meter()
        .u64_counter("tavern.test.count")
        .build()
        .add(1, &[]);
    for _ in 0..3 {
        let span = spans::execute_tool("file:read");
        span.in_scope(|| {
            // Printed for the test, which compares them with the exports.
            let ids = telemetry::context::current_ids();
            tracing::info!(ids = ids.0 + &ids.1, "a line beside the span");
        });
        // Several exports, so that an export of an export would be seen.
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
    spans::fail(&spans::chat("last"), "timeout", "no answer");
    guard.shutdown().await;
}

#[derive(Clone, Default)]
struct Receiver {
    received: Arc<Mutex<Vec<u8>>>,
}

impl Receiver {
    fn contains(&self, text: &str) -> bool {
        self.has(text.as_bytes())
    }

    fn has(&self, bytes: &[u8]) -> bool {
        let received = self.received.lock().unwrap();
        received.windows(bytes.len()).any(|window| window == bytes)
    }
}

/// Receives one kind of data: keeps the bytes and answers with an empty message.
#[derive(Clone)]
struct Receives<const KIND: char>(Receiver);

impl NamedService for Receives<'t'> {
    const NAME: &'static str = "opentelemetry.proto.collector.trace.v1.TraceService";
}

impl NamedService for Receives<'m'> {
    const NAME: &'static str = "opentelemetry.proto.collector.metrics.v1.MetricsService";
}

impl NamedService for Receives<'l'> {
    const NAME: &'static str = "opentelemetry.proto.collector.logs.v1.LogsService";
}

impl<const KIND: char> Service<Request<Body>> for Receives<KIND> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let receiver = self.0.clone();
        Box::pin(async move {
            let bytes = request.into_body().collect().await.unwrap().to_bytes();
            receiver.received.lock().unwrap().extend_from_slice(&bytes);
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", "0".parse().unwrap());
            let frames = [
                Ok::<_, tonic::Status>(Frame::data(bytes::Bytes::from_static(&[0; 5]))),
                Ok(Frame::trailers(trailers)),
            ];
            let mut frames = frames.into_iter();
            let body = StreamBody::new(Next(move || frames.next()));
            let mut response = Response::new(Body::new(body));
            response
                .headers_mut()
                .insert("content-type", "application/grpc".parse().unwrap());
            Ok(response)
        })
    }
}

/// A stream of the values of a function.
struct Next<F>(F);

impl<T, F: FnMut() -> Option<T> + Unpin> tonic::codegen::tokio_stream::Stream for Next<F> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<T>> {
        Poll::Ready((self.0)())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn traces_metrics_and_logs_arrive_and_exporting_is_not_exported() {
    let receiver = Receiver::default();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    let incoming = tonic::transport::server::TcpIncoming::from(
        tokio::net::TcpListener::from_std(listener).unwrap(),
    );
    tokio::spawn(
        tonic::transport::Server::builder()
            .add_service(Receives::<'t'>(receiver.clone()))
            .add_service(Receives::<'m'>(receiver.clone()))
            .add_service(Receives::<'l'>(receiver.clone()))
            .serve_with_incoming(incoming),
    );
    let child = tokio::task::spawn_blocking(move || {
        Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "export::the_child_exports_only_when_asked",
                "--nocapture",
            ])
            .env(ENDPOINT, format!("http://{address}"))
            .output()
            .unwrap()
    });
    let output = tokio::time::timeout(Duration::from_secs(60), child)
        .await
        .unwrap()
        .unwrap();
    let logged = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{logged}");
    for text in [
        "execute_tool file:read",
        "chat last",
        "no answer",
        "telemetry-test",
        "1.2.3",
        "tavern.test.count",
        "a line beside the span",
    ] {
        assert!(
            receiver.contains(text),
            "{text} did not arrive; the child logged {logged}"
        );
    }
    for text in ["h2::", "hyper", "tonic::", "opentelemetry_sdk"] {
        assert!(!receiver.contains(text), "{text} was exported");
    }
    let line = logged
        .lines()
        .find(|line| line.contains("a line beside the span"))
        .unwrap();
    assert!(
        line.starts_with('{') && line.contains("gen_ai.tool.name"),
        "{line}"
    );
    // Each record has the ids of the span that it was logged in, in the fields 9 and 10.
    for line in logged
        .lines()
        .filter(|line| line.contains("a line beside the span"))
    {
        let (_, ids) = line.split_once("\"ids\":\"").unwrap();
        let ids: Vec<u8> = (0..24)
            .map(|at| u8::from_str_radix(&ids[2 * at..2 * at + 2], 16).unwrap())
            .collect();
        let fields = [
            &[9 << 3 | 2, 16][..],
            &ids[..16],
            &[10 << 3 | 2, 8],
            &ids[16..],
        ]
        .concat();
        assert!(receiver.has(&fields), "{line} was exported without its ids");
    }
}
