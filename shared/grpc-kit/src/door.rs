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

use crate::{
    Failure,
    methods::{self, Method},
    tls::PeerProof,
};

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

/// Admits the call of a service, whose name the method's facts must have. Where callers prove themselves, the name
/// that a call states must be the one of the certificate. Elsewhere a call of a program itself has no name, and
/// enters. Health is reported to everyone. A refusal is recorded with its reason.
pub(crate) fn admit_peer(
    method: &Method,
    stated: Option<Peer>,
    proof: &PeerProof,
    record: impl Fn(String),
) -> Result<(), Status> {
    if methods::is_health(&method.full_name) {
        return Ok(());
    }
    let refused = |name: &str, reason: &str| {
        record(format!("{name} called {}: {reason}", method.full_name));
    };
    let unproven = |name: &str, reason: &str| {
        refused(name, reason);
        let message = format!("only services may call here: {reason}");
        Failure::new(Code::Unauthenticated, ErrorReason::Unauthenticated, message).into_status()
    };
    let caller = match proof {
        PeerProof::NotAsked => stated,
        PeerProof::Missing => {
            return Err(unproven("a stranger", "no certificate names the service"));
        }
        PeerProof::Service(proven) => {
            let peer = proven.service.peer();
            if stated.is_some_and(|stated| stated != peer) {
                let reason = "the certificate names another service";
                return Err(unproven(proven.service.program(), reason));
            }
            Some(peer)
        }
    };
    let (Some(caller), Some(access)) = (caller, method.access) else {
        return Ok(());
    };
    if access.admits(caller) {
        return Ok(());
    }
    let name = match proof {
        PeerProof::Service(proven) => proven.service.program().to_owned(),
        PeerProof::NotAsked | PeerProof::Missing => name_of(caller),
    };
    refused(&name, "the contract does not name the service");
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

/// Refuses a client of another host that no credential proves, while there is none yet.
pub(crate) fn keyless() -> Status {
    let message =
        "clients of other hosts need a key; the first one is made by `tavern keys bootstrap`";
    Failure::new(Code::Unauthenticated, ErrorReason::Unauthenticated, message).into_status()
}

fn name_of(peer: Peer) -> String {
    let name = peer.as_str_name().trim_start_matches("PEER_");
    name.to_lowercase().replace('_', "-")
}
