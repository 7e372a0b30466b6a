//! The services that a server offers, whether over a socket or in process.

use std::{collections::HashMap, convert::Infallible, sync::Arc, time::Duration};

use http::{Request, Response};
use tonic::{Status, body::Body, server::NamedService};
use tower::{Service, ServiceExt, util::BoxCloneSyncService};

use crate::methods::Methods;

/// A service without its type.
type Handler = BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>;

/// A set of tonic services with the special limits of their methods.
#[derive(Clone, Debug, Default)]
pub struct Services {
    pub(crate) routes: Routes,
    pub(crate) names: Vec<&'static str>,
    pub(crate) descriptor_sets: Vec<&'static [u8]>,
    pub(crate) timeouts: HashMap<String, Duration>,
    pub(crate) max_requests: HashMap<String, usize>,
}

impl Services {
    /// Begins an empty set.
    pub fn new() -> Self {
        Self {
            descriptor_sets: vec![contracts::FILE_DESCRIPTOR_SET],
            ..Self::default()
        }
    }

    /// Adds a generated server type.
    #[must_use]
    #[expect(
        clippy::should_implement_trait,
        reason = "no reader takes it for arithmetic"
    )]
    pub fn add<S>(mut self, service: S) -> Self
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>
            + NamedService
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send + 'static,
    {
        self.routes.0.insert(S::NAME, Handler::new(service));
        self.names.push(S::NAME);
        self
    }

    /// Adds everything that `other` offers, so that one server can serve several services.
    #[must_use]
    pub fn merge(mut self, other: Self) -> Self {
        self.routes.0.extend(other.routes.0);
        self.names.extend(other.names);
        self.timeouts.extend(other.timeouts);
        self.max_requests.extend(other.max_requests);
        for encoded in other.descriptor_sets {
            if !self.descriptor_sets.contains(&encoded) {
                self.descriptor_sets.push(encoded);
            }
        }
        self
    }

    /// Sets the timeout of a method (`package.Service/Method`), in place of the settings' limits
    /// for calls and streams.
    #[must_use]
    pub fn method_timeout(mut self, method: &str, timeout: Duration) -> Self {
        self.timeouts.insert(method.to_owned(), timeout);
        self
    }

    /// Bounds the messages that a service (`package.Service`) reads, in bytes, where the settings of
    /// the server allow more. The service's own decoding limit must not be lower, as its refusal names
    /// neither the limit nor the remedy.
    #[must_use]
    pub fn max_request_message(mut self, service: &str, bytes: usize) -> Self {
        self.max_requests.insert(service.to_owned(), bytes);
        self
    }

    /// Adds a serialised `FileDescriptorSet` that describes services outside the contract.
    #[must_use]
    pub fn descriptor_set(mut self, encoded: &'static [u8]) -> Self {
        self.descriptor_sets.push(encoded);
        self
    }

    /// Returns the full names (`package.Service`) of the services.
    pub fn names(&self) -> &[&'static str] {
        &self.names
    }

    pub(crate) fn methods(&self) -> Arc<Methods> {
        Arc::new(Methods::read(
            &self.descriptor_sets,
            &self.timeouts,
            &self.max_requests,
        ))
    }
}

/// The services by their names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Routes(HashMap<&'static str, Handler>);

impl Routes {
    /// Has the service that the path names answer a request.
    pub(crate) async fn call(&self, request: Request<Body>) -> Response<Body> {
        let Some(handler) = self.0.get(service_of(&request)) else {
            return Status::unimplemented("this server has no such service").into_http();
        };
        let Ok(response) = handler.clone().oneshot(request).await;
        response
    }
}

/// Returns the name of the service (`package.Service`) that a request is for.
pub(crate) fn service_of(request: &Request<Body>) -> &str {
    let path = request.uri().path().trim_start_matches('/');
    path.split('/').next().unwrap_or_default()
}
