//! The services of a server, as a handler of plain HTTP calls them.

use std::{
    fmt,
    future::Future,
    net::IpAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::{HeaderMap, Request, Response};
use tokio_util::{sync::CancellationToken, task::task_tracker::TaskTrackerToken};
use tonic::{Status, body::Body};
use tower::Service;

use super::{gate::ConnectionPermit, proxied::Proxied};
use crate::{
    Drain,
    rpc::{Entry, Origin, Stack},
};

/// The services of a server, as a handler of plain HTTP calls them: on behalf of the peer of the HTTP
/// request, with every limit, deadline, span and drain that a gRPC call has. The extensions of each
/// HTTP request contain one; clones count as the same connection.
#[derive(Clone)]
pub struct Calls {
    stack: Stack,
    origin: Origin,
    connection: Arc<HeldConnection>,
}

/// A connection that counts as open, and that a drain waits for, until this is dropped: also after
/// HTTP has handed it over to another protocol.
pub(crate) struct HeldConnection {
    pub(crate) abort: CancellationToken,
    pub(crate) _permit: ConnectionPermit,
    pub(crate) _task: TaskTrackerToken,
}

impl fmt::Debug for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Calls").finish_non_exhaustive()
    }
}

impl Calls {
    pub(crate) fn new(stack: Stack, origin: Origin, connection: HeldConnection) -> Self {
        Self {
            stack,
            origin,
            connection: Arc::new(connection),
        }
    }

    /// Returns the calls of the client that a request states, if it came by a proxy; its own share counts.
    pub(super) fn behind(mut self, proxied: Option<&Proxied>, headers: &HeaderMap) -> Self {
        if let Some(proxied) = proxied {
            let (address, share) = proxied.client(headers);
            self.origin = self.origin.of_client(address, share);
        }
        self
    }

    /// Answers a gRPC request. Whatever goes wrong becomes a response with a status.
    pub async fn serve(self, request: Request<Body>) -> Response<Body> {
        self.stack.serve(request, self.origin.of_a_call()).await
    }

    /// Has the door decide about a call of the method at `path`, whose request is read only afterwards.
    ///
    /// # Errors
    /// The status that refuses the call.
    pub async fn enter(&self, path: &str, headers: &HeaderMap) -> Result<EnteredCall, Status> {
        let entry = self.stack.enter(path, headers, &self.origin).await?;
        Ok(EnteredCall {
            calls: self.clone(),
            path: path.to_owned(),
            entry: Some(entry),
        })
    }

    /// Has the door decide whether `headers` prove any caller, for a request that names its method in its
    /// body. `name` stands for the method in the log.
    ///
    /// # Errors
    /// The status that refuses the request.
    pub async fn knock(&self, name: &str, headers: &HeaderMap) -> Result<(), Status> {
        let admission = self
            .stack
            .knock_as((name, false), headers, &self.origin)
            .await;
        admission.map(drop)
    }

    /// Returns the size in bytes of the largest message that the method at `path` reads.
    pub fn max_request_message(&self, path: &str) -> usize {
        self.stack.max_request_message(path)
    }

    /// Returns the address of the client; `None` in process.
    pub fn peer(&self) -> Option<IpAddr> {
        self.origin.peer.map(|peer| peer.ip())
    }

    /// Whether the connection is one with TLS.
    pub fn is_encrypted(&self) -> bool {
        self.origin.is_encrypted
    }

    /// Whether a proxy that ends TLS has sent the request.
    pub fn is_proxied(&self) -> bool {
        self.origin.is_proxied
    }

    /// Returns the drain of the connection.
    pub fn drain(&self) -> &Drain {
        &self.origin.drain
    }

    /// Waits until the connection must end at once: its peer has stopped reading, or the server did
    /// not finish in time. A handler that upgraded the connection must watch for it.
    pub async fn cut(&self) {
        let closed = async {
            match &self.origin.close {
                Some(close) => close.cancelled().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! { () = closed => {} () = self.connection.abort.cancelled() => {} }
    }
}

impl Service<Request<Body>> for Calls {
    type Response = Response<Body>;
    type Error = Status;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Status>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let calls = self.clone();
        Box::pin(async move { Ok(calls.serve(request).await) })
    }
}

/// A call that the door has admitted, as a service that answers its one request.
#[derive(Debug)]
pub struct EnteredCall {
    calls: Calls,
    path: String,
    /// Missing once the call is answered.
    entry: Option<Entry>,
}

impl EnteredCall {
    /// Reads the request of the call, which takes as long as its client likes.
    ///
    /// # Errors
    /// The failure of `read`, and the status that ends the call of a caller who may have it no longer.
    pub async fn read<T>(
        &mut self,
        read: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Status> {
        match &mut self.entry {
            Some(entry) => entry.read(read).await,
            None => read.await,
        }
    }
}

impl Service<Request<Body>> for EnteredCall {
    type Response = Response<Body>;
    type Error = Status;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Status>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let calls = self.calls.clone();
        // The door has decided about one request of this method, and about no other.
        let is_admitted = request.uri().path() == self.path;
        let entry = self.entry.take().filter(|_| is_admitted);
        Box::pin(async move {
            let another = || Status::internal("the request is not the one that was admitted");
            let entry = entry.ok_or_else(another)?;
            let origin = calls.origin.of_a_call();
            Ok(calls.stack.serve_entered(entry, request, origin).await)
        })
    }
}
