//! The door of a server that clients call: it decides who enters.
//!
//! A server without a door serves peers, whose headers it believes. With a door, the principal of a call is
//! the one that the door has admitted.

use std::{any::Any, fmt, net::IpAddr, sync::Arc};

use contracts::tavern::{access::v1::Peer, common::v1::ErrorReason};
use core_types::{Principal, Reach};
use futures::future::BoxFuture;
use http::HeaderMap;
use tonic::{Code, Status};

use crate::{Failure, methods::Method};

/// Decides about each call from outside, before anything of it is decoded.
pub trait Door: fmt::Debug + Send + Sync {
    /// Admits a call.
    ///
    /// Fails with the status that refuses it: `UNAUTHENTICATED`, `PERMISSION_DENIED`, or `UNAVAILABLE` while
    /// nothing is known about credentials.
    fn admit<'a>(&'a self, knock: Knock<'a>) -> BoxFuture<'a, Result<Admission, Status>>;
}

/// A call before the door.
#[derive(Clone, Copy)]
pub struct Knock<'a> {
    /// The method: `package.Service/Method`.
    pub method: &'a str,
    /// The headers of the request.
    pub headers: &'a HeaderMap,
    /// The address of the client; `None` in process.
    pub peer: Option<IpAddr>,
    /// Whether the answer is a stream.
    pub streams: bool,
}

impl fmt::Debug for Knock<'_> {
    /// Leaves out the headers, among which are credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Knock")
            .field("method", &self.method)
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}

/// The admission of a call.
pub struct Admission {
    /// The identity that the call acts for.
    pub principal: Principal,
    /// The id of the key that proved it; `None` where none did.
    pub key_id: Option<Arc<str>>,
    /// The objects that the call can see.
    pub reach: Reach,
    /// Completes when the caller may no longer have an open call or stream, with the status that ends it;
    /// `None` for a caller that may have it for ever. It is polled only where the handler has to wait.
    pub ended: Option<BoxFuture<'static, Status>>,
    /// A value that is kept until the call is over, and dropped then.
    pub held: CallGuard,
}

/// A value that is kept until a call is over; `None` for nothing.
pub type CallGuard = Option<Box<dyn Any + Send + Sync>>;

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admission")
            .field("principal", &self.principal)
            .finish_non_exhaustive()
    }
}

/// Admits the call of a service, whose name the method's facts must have. A call of a program itself has no
/// name, and enters.
pub(crate) fn admit_peer(method: &Method, peer: Option<Peer>) -> Result<(), Status> {
    let (Some(peer), Some(access)) = (peer, method.access) else {
        return Ok(());
    };
    if access.admits(peer) {
        return Ok(());
    }
    let name = peer
        .as_str_name()
        .trim_start_matches("PEER_")
        .to_lowercase();
    let name = name.replace('_', "-");
    tracing::warn!(method = %method.full_name, peer = name, "a service may not call this method");
    let message = format!("the service {name} may not call {}", method.full_name);
    let failure = Failure::new(
        Code::PermissionDenied,
        ErrorReason::PermissionDenied,
        message,
    );
    let failure = failure
        .metadata("principal", name)
        .metadata("permission", "peer");
    Err(failure.metadata("method", &*method.full_name).into_status())
}
