//! The service under test: two methods over strings, written out by hand.
//!
//! `Say` answers one text, `Tell` a stream of texts; the request describes them.

use std::{
    convert::Infallible,
    future::Future,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use futures::{Stream, StreamExt, stream};
use grpc_kit::{
    CallContext, ClientSettings, Drain, Outbound, Served, Server, ServerSettings, Services,
    Shutdown, ShutdownHandle, Transport,
};
use http::{Request as HttpRequest, Response as HttpResponse, uri::PathAndQuery};
use prost::Message;
use prost_types::{
    FileDescriptorProto, FileDescriptorSet, MethodDescriptorProto, ServiceDescriptorProto,
};
use tokio::{sync::Semaphore, task::JoinHandle};
use tonic::{Request, Response, Status, Streaming, body::Body, server::NamedService};
use tonic_prost::ProstCodec;
use tower::Service;

/// An extension that a caller may try to smuggle in.
#[derive(Clone, Debug)]
pub(crate) struct Forged;

/// The timeout of every wait of a test. No wait takes nearly so long on an idle machine; a busy one
/// gets its time.
const PATIENCE: Duration = Duration::from_secs(60);

/// The service. Clones share everything.
#[derive(Clone, Debug)]
pub(crate) struct Probe {
    /// Handlers that have begun and not ended.
    pub(crate) running: Arc<AtomicUsize>,
    /// Handlers that have begun.
    pub(crate) begun: Arc<AtomicUsize>,
    /// Each permit lets one call of `gate` pass.
    pub(crate) gate: Arc<Semaphore>,
    /// The way to the service itself, for `round`.
    pub(crate) itself: Arc<OnceLock<Transport>>,
}

impl Default for Probe {
    fn default() -> Self {
        Self {
            running: Arc::default(),
            begun: Arc::default(),
            gate: Arc::new(Semaphore::new(0)),
            itself: Arc::default(),
        }
    }
}

impl Probe {
    /// Counts a handler while the result lives.
    fn enter(&self) -> Running {
        self.begun.fetch_add(1, Ordering::SeqCst);
        self.running.fetch_add(1, Ordering::SeqCst);
        Running(self.running.clone())
    }
}

struct Running(Arc<AtomicUsize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl NamedService for Probe {
    const NAME: &'static str = "test.v1.Probe";
}

impl Service<HttpRequest<Body>> for Probe {
    type Response = HttpResponse<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<HttpResponse<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: HttpRequest<Body>) -> Self::Future {
        let probe = self.clone();
        Box::pin(async move {
            let mut grpc = tonic::server::Grpc::new(ProstCodec::<String, String>::default());
            Ok(match request.uri().path() {
                "/test.v1.Probe/Say" => grpc.unary(Say(probe), request).await,
                "/test.v1.Probe/Tell" => grpc.server_streaming(Tell(probe), request).await,
                _ => Status::unimplemented("").into_http(),
            })
        })
    }
}

/// The same as a service of the contract, whose methods have facts.
#[derive(Clone, Debug)]
struct RunProbe(Probe);

impl NamedService for RunProbe {
    const NAME: &'static str = "tavern.run.v1.RunService";
}

impl Service<HttpRequest<Body>> for RunProbe {
    type Response = HttpResponse<Body>;
    type Error = Infallible;
    type Future = <Probe as Service<HttpRequest<Body>>>::Future;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: HttpRequest<Body>) -> Self::Future {
        let probe = self.0.clone();
        Box::pin(async move {
            let mut grpc = tonic::server::Grpc::new(ProstCodec::<String, String>::default());
            Ok(grpc.unary(Say(probe), request).await)
        })
    }
}

struct Say(Probe);

impl tonic::server::UnaryService<String> for Say {
    type Response = String;
    type Future = Pin<Box<dyn Future<Output = Result<Response<String>, Status>> + Send>>;

    fn call(&mut self, request: Request<String>) -> Self::Future {
        let probe = self.0.clone();
        Box::pin(async move {
            let _running = probe.enter();
            say(request, &probe).await
        })
    }
}

async fn say(request: Request<String>, probe: &Probe) -> Result<Response<String>, Status> {
    let (word, argument) = words(request.get_ref());
    let header = |name: &str| {
        request
            .metadata()
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    };
    Ok(Response::new(match word {
        "echo" => argument.to_owned(),
        "forever" => std::future::pending().await,
        "wait" => {
            tokio::time::sleep(Duration::from_millis(argument.parse().unwrap())).await;
            "waited".to_owned()
        }
        "gate" => {
            probe.gate.acquire().await.unwrap().forget();
            "passed".to_owned()
        }
        "round" => match argument.parse().unwrap() {
            0 => "round".to_owned(),
            more => {
                let itself = probe.itself.get().unwrap().clone();
                Client::new(itself)
                    .say(format!("round {}", more - 1))
                    .await?
            }
        },
        "panic" => panic!("the secret of the handler"),
        "forged" => request.extensions().get::<Forged>().is_some().to_string(),
        "peer" => request.remote_addr().is_some().to_string(),
        "header" => header(argument).to_owned(),
        "large" => "x".repeat(argument.parse().unwrap()),
        "path" => CallContext::of(&request).path().steps().join(" > "),
        "remaining" => CallContext::of(&request)
            .remaining()
            .unwrap()
            .as_millis()
            .to_string(),
        "trace" => telemetry::context::current_trace_id(),
        "trailer" => {
            let mut response = Response::new("done".to_owned());
            response
                .metadata_mut()
                .insert("x-answer", "yes".parse().unwrap());
            return Ok(response);
        }
        "refuse" => {
            return Err(grpc_kit::Failure::invalid_fields()
                .violation("a", "is wrong")
                .violation("b", "is wrong too")
                .into_status());
        }
        other => return Err(Status::invalid_argument(other)),
    }))
}

struct Tell(Probe);

type Texts = Pin<Box<dyn Stream<Item = Result<String, Status>> + Send>>;

impl tonic::server::ServerStreamingService<String> for Tell {
    type Response = String;
    type ResponseStream = Texts;
    type Future = std::future::Ready<Result<Response<Texts>, Status>>;

    fn call(&mut self, request: Request<String>) -> Self::Future {
        let held = self.0.enter();
        let texts = tell(&request).inspect(move |_| {
            let _ = &held;
        });
        std::future::ready(Ok(Response::new(Box::pin(texts))))
    }
}

fn tell(request: &Request<String>) -> Texts {
    let (word, argument) = words(request.get_ref());
    let first = stream::iter([Ok("first".to_owned())]);
    match word {
        "count" => {
            let count: usize = argument.parse().unwrap();
            Box::pin(stream::iter(
                (0..count).map(|number| Ok(number.to_string())),
            ))
        }
        "forever" => Box::pin(first.chain(stream::pending())),
        "tick" => Box::pin(stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_millis(10)).await;
            Some((Ok("tick".to_owned()), ()))
        })),
        "panic" => Box::pin(first.chain(stream::once(async {
            // Messages that are ready together share a frame, and a panic takes its frame along.
            tokio::task::yield_now().await;
            panic!("the secret of the stream")
        }))),
        "path" => {
            let path = CallContext::of(request).path().steps().join(" > ");
            Box::pin(stream::iter([Ok(path)]))
        }
        "large" => {
            let length: usize = argument.parse().unwrap();
            Box::pin(first.chain(stream::iter([Ok("x".repeat(length))])))
        }
        "drain" => {
            let drain = Drain::of(request);
            Box::pin(first.chain(stream::once(async move {
                drain.started().await;
                Ok("drain".to_owned())
            })))
        }
        other => Box::pin(stream::iter([Err(Status::invalid_argument(
            other.to_owned(),
        ))])),
    }
}

fn words(text: &str) -> (&str, &str) {
    text.split_once(' ').unwrap_or((text, ""))
}

fn descriptor_set() -> &'static [u8] {
    let method = |name: &str, streams| MethodDescriptorProto {
        name: Some(name.to_owned()),
        input_type: Some(".google.protobuf.StringValue".to_owned()),
        output_type: Some(".google.protobuf.StringValue".to_owned()),
        server_streaming: Some(streams),
        ..MethodDescriptorProto::default()
    };
    let file = FileDescriptorProto {
        name: Some("test/v1/probe.proto".to_owned()),
        package: Some("test.v1".to_owned()),
        service: vec![ServiceDescriptorProto {
            name: Some("Probe".to_owned()),
            method: vec![method("Say", false), method("Tell", true)],
            ..ServiceDescriptorProto::default()
        }],
        ..FileDescriptorProto::default()
    };
    FileDescriptorSet { file: vec![file] }
        .encode_to_vec()
        .leak()
}

/// A client of the service.
pub(crate) struct Client(pub(crate) tonic::client::Grpc<Outbound>);

impl Client {
    pub(crate) fn new(transport: Transport) -> Self {
        Self::with(&transport, &CallContext::outermost())
    }

    /// Makes a client of which each call has the context.
    pub(crate) fn with(transport: &Transport, context: &CallContext) -> Self {
        let grpc = tonic::client::Grpc::new(transport.with(context));
        Self(
            grpc.max_decoding_message_size(64 << 20)
                .max_encoding_message_size(64 << 20),
        )
    }

    pub(crate) async fn say(&mut self, text: impl Into<String>) -> Result<String, Status> {
        self.send(Request::new(text.into()))
            .await
            .map(Response::into_inner)
    }

    pub(crate) async fn send(
        &mut self,
        request: Request<String>,
    ) -> Result<Response<String>, Status> {
        self.0.ready().await?;
        let path = PathAndQuery::from_static("/test.v1.Probe/Say");
        self.0.unary(request, path, ProstCodec::default()).await
    }

    pub(crate) async fn tell(
        &mut self,
        text: impl Into<String>,
    ) -> Result<Streaming<String>, Status> {
        self.tell_with(Request::new(text.into())).await
    }

    pub(crate) async fn tell_with(
        &mut self,
        request: Request<String>,
    ) -> Result<Streaming<String>, Status> {
        self.0.ready().await?;
        let path = PathAndQuery::from_static("/test.v1.Probe/Tell");
        let codec = ProstCodec::default();
        Ok(self
            .0
            .server_streaming(request, path, codec)
            .await?
            .into_inner())
    }
}

/// A server that runs alongside the test.
pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    pub(crate) probe: Probe,
    pub(crate) shutdown: ShutdownHandle,
    pub(crate) served: JoinHandle<Result<Served, grpc_kit::ServeError>>,
}

impl TestServer {
    pub(crate) async fn start(settings: ServerSettings) -> Self {
        Self::start_with(settings, |server| server).await
    }

    pub(crate) async fn start_with(
        settings: ServerSettings,
        change: impl FnOnce(Server) -> Server,
    ) -> Self {
        telemetry::init_for_tests();
        let probe = Probe::default();
        let listener = grpc_kit::bind(&settings).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (shutdown, handle) = Shutdown::manual();
        let server = change(Server::new(settings, services(&probe)));
        let served = tokio::spawn(server.serve(listener, shutdown));
        Self {
            address,
            probe,
            shutdown: handle,
            served,
        }
    }

    pub(crate) fn transport(&self) -> Transport {
        grpc_kit::remote(&ClientSettings::to(format!("http://{}", self.address))).unwrap()
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.transport())
    }

    /// Waits until as many handlers run.
    pub(crate) async fn running(&self, count: usize) {
        until("handlers run", || {
            self.probe.running.load(Ordering::SeqCst) == count
        })
        .await;
    }
}

/// A client with one connection and nothing of ours, as other libraries have it.
pub(crate) async fn raw_client(
    server: &TestServer,
) -> tonic::client::Grpc<tonic::transport::Channel> {
    let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{}", server.address));
    tonic::client::Grpc::new(endpoint.unwrap().connect().await.unwrap())
}

pub(crate) fn services(probe: &Probe) -> Services {
    Services::new()
        .add(probe.clone())
        .add(RunProbe(probe.clone()))
        .descriptor_set(descriptor_set())
}

/// Waits for a condition.
pub(crate) async fn until(what: &str, condition: impl Fn() -> bool) {
    let wait = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    assert!(
        tokio::time::timeout(PATIENCE, wait).await.is_ok(),
        "waited {PATIENCE:?} until {what}"
    );
}

/// Waits for a future.
pub(crate) async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(output) => output,
        Err(_) => panic!("{what} took more than {PATIENCE:?}"),
    }
}
