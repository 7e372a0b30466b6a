//! A double of the registry's knowledge of principals.

use std::{
    collections::HashMap,
    convert::Infallible,
    future::{Ready, ready},
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
};

use contracts::tavern::{
    access::v1::Permission,
    common::v1::ErrorReason,
    registry::v1::{
        Caller, ResolvePrincipalRequest, ResolvePrincipalResponse,
        identity_service_server::SERVICE_NAME,
    },
};
use grpc_kit::Failure;
use http::{Request as HttpRequest, Response as HttpResponse};
use tonic::{
    Code, Request, Response, Status,
    body::Body,
    server::{Grpc, NamedService, UnaryService},
};
use tonic_prost::ProstCodec;
use tower::Service;

/// Answers `ResolvePrincipal` only: with every permission, but for the principals whose permissions a test
/// sets. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct IdentityDouble {
    permissions: Arc<Mutex<HashMap<String, Vec<Permission>>>>,
    is_away: Arc<Mutex<bool>>,
}

impl IdentityDouble {
    /// Sets the permissions of a principal; without any, the principal does not exist.
    pub fn set(&self, principal: &str, permissions: &[Permission]) {
        let mut all = self.permissions.lock().unwrap();
        all.insert(principal.to_owned(), permissions.to_vec());
    }

    /// Lets the service be away, or return.
    pub fn be_away(&self, is_away: bool) {
        *self.is_away.lock().unwrap() = is_away;
    }

    fn resolve(&self, principal: &str) -> Result<ResolvePrincipalResponse, Status> {
        if *self.is_away.lock().unwrap() {
            return Err(Status::unavailable("the registry is away"));
        }
        let set = self.permissions.lock().unwrap().get(principal).cloned();
        let permissions = set.unwrap_or_else(|| Permission::OF_CLIENTS.to_vec());
        if permissions.is_empty() {
            let reason = ErrorReason::Unauthenticated;
            return Err(Failure::new(Code::Unauthenticated, reason, "no one").into_status());
        }
        let permissions = permissions.iter().map(|one| one.name().to_owned());
        Ok(ResolvePrincipalResponse {
            caller: Some(Caller {
                principal: principal.to_owned(),
                permissions: permissions.collect(),
                ..Caller::default()
            }),
        })
    }
}

impl NamedService for IdentityDouble {
    const NAME: &'static str = SERVICE_NAME;
}

impl UnaryService<ResolvePrincipalRequest> for IdentityDouble {
    type Response = ResolvePrincipalResponse;
    type Future = Ready<Result<Response<Self::Response>, Status>>;

    fn call(&mut self, request: Request<ResolvePrincipalRequest>) -> Self::Future {
        ready(
            self.resolve(&request.get_ref().principal)
                .map(Response::new),
        )
    }
}

impl Service<HttpRequest<Body>> for IdentityDouble {
    type Response = HttpResponse<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: HttpRequest<Body>) -> Self::Future {
        let double = self.clone();
        Box::pin(async move {
            if !request.uri().path().ends_with("/ResolvePrincipal") {
                return Ok(Status::unimplemented("the double only resolves principals").into_http());
            }
            Ok(Grpc::new(ProstCodec::default())
                .unary(double, request)
                .await)
        })
    }
}
