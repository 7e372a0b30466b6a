//! The door of the gateway: it takes the credentials of clients, and nothing else does.
//!
//! The registry resolves a credential; its answer is remembered for a few seconds. The permission that a
//! method needs is in the contract.
//!
//! - `credential`: the credential of a call, among its headers.
//! - `registry`: callers, as the registry resolves them.
//! - `callers`: the caller whom a credential proves, remembered.
//! - `rights`: the permissions of a caller, and the access to a method.
//! - `standing`: callers with open streams, looked up again while these last.
//! - `held`: callers whose ticket is used up while their socket is open.
//! - `refusal`: the statuses that refuse a call.
//! - `limits`: the limits of tenants that the door keeps.
//! - `open`: the door of a gateway that does not prove itself to its registry.
//! - `denials`: refusals in the log, once a minute with their number.
//! - `audited`: refusals in the audit of the registry.

mod audited;
mod callers;
pub(crate) mod credential;
mod denials;
mod held;
mod limits;
mod open;
mod refusal;
mod registry;
mod rights;
mod standing;

use std::any::Any;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use contracts::tavern::registry::v1::{IssueTicketResponse, LoginResponse};
use core_types::{Principal, Reach};
use futures::FutureExt;
use futures::future::BoxFuture;
use grpc_kit::{Admission, CallGuard, Door, Knock};
use http::HeaderMap;
use tokio::time::Instant;
use tonic::Status;

use crate::Peers;
use audited::AuditedDenials;
use callers::Callers;
use denials::Denials;
use limits::TenantLimits;
use registry::{Caller, Registry, Subject};
use rights::MethodAccess;
use standing::{End, Standings};

pub(crate) use held::HeldCaller;
pub(crate) use open::OpenDoor;

/// The longest time for which a call waits at the door.
const LONGEST: Duration = Duration::from_secs(5);

/// The door in front of a server of the gateway.
#[derive(Clone, Debug)]
pub(crate) struct ClientDoor {
    registry: Registry,
    callers: Callers,
    standings: Standings,
    limits: TenantLimits,
    denials: Denials,
    audited: AuditedDenials,
}

impl ClientDoor {
    /// Makes a door whose credentials the registry of `peers` resolves.
    pub(crate) fn new(peers: &Peers) -> Self {
        let registry = Registry::new(peers, LONGEST);
        Self {
            callers: Callers::new(registry.clone()),
            registry,
            standings: Standings::new(peers),
            limits: TenantLimits::default(),
            denials: Denials::default(),
            audited: AuditedDenials::new(peers),
        }
    }

    /// Resolves a ticket, which this uses up, for a socket whose later requests have no credential of their
    /// own; `None` while no key exists, so that they need none.
    ///
    /// # Errors
    /// `UNAUTHENTICATED`, `TENANT_CLOSED`, and `UNAVAILABLE` while the registry is away.
    pub(crate) async fn hold(
        &self,
        ticket: &str,
        peer: Option<IpAddr>,
    ) -> Result<Option<HeldCaller>, Status> {
        let held = self.callers.hold(ticket).await;
        self.recorded(held, "/v1/session", peer).await
    }

    /// Exchanges a key for the token of a login.
    ///
    /// # Errors
    /// `UNAUTHENTICATED`, `TENANT_CLOSED`, and `UNAVAILABLE` while the registry is away.
    pub(crate) async fn login(
        &self,
        key: &str,
        peer: Option<IpAddr>,
    ) -> Result<LoginResponse, Status> {
        let login = self.registry.login(key).await;
        self.recorded(login, "/v1/login", peer).await
    }

    /// Makes a ticket that stands for a credential once.
    ///
    /// # Errors
    /// `UNAUTHENTICATED`, `TENANT_CLOSED`, `LIMIT_EXCEEDED`, and `UNAVAILABLE` while the registry is away.
    pub(crate) async fn issue_ticket(
        &self,
        credential: &str,
        peer: Option<IpAddr>,
    ) -> Result<IssueTicketResponse, Status> {
        let issued = self.registry.issue_ticket(credential).await;
        self.recorded(issued, "/v1/ticket", peer).await
    }

    /// Whether no key exists, as far as is known, so that a request without a credential is answered.
    pub(crate) async fn is_open(&self, headers: &HeaderMap) -> bool {
        let Ok(credential) = credential::of(headers) else {
            return false;
        };
        let caller = self.callers.resolve(credential).await;
        caller.is_ok_and(|caller| caller.subject == Subject::Open)
    }

    /// Records a refusal in the log and in the audit.
    async fn record(
        &self,
        principal: Option<&Principal>,
        method: &str,
        refusal: &Status,
        peer: Option<IpAddr>,
    ) {
        let principal = principal.map_or("", Principal::as_str);
        self.denials.record(principal, method, refusal.code(), peer);
        self.audited.record(principal, method, refusal.code()).await;
    }

    /// Records the refusal of a caller that is not known, if it is one.
    async fn recorded<T>(
        &self,
        result: Result<T, Status>,
        method: &str,
        peer: Option<IpAddr>,
    ) -> Result<T, Status> {
        if let Err(refusal) = &result {
            self.record(None, method, refusal, peer).await;
        }
        result
    }

    async fn decide(&self, knock: Knock<'_>) -> Result<Admission, Refused> {
        let access = MethodAccess::of(knock.method, knock.peer);
        match access {
            MethodAccess::Public => {
                return Ok(Admission {
                    principal: Principal::LOCAL,
                    key_id: None,
                    reach: Reach::Own,
                    ended: None,
                    held: None,
                });
            }
            MethodAccess::Peers => return Err(Refused::nameless(refusal::of_peers(knock.method))),
            MethodAccess::Caller | MethodAccess::With(_) | MethodAccess::InSystem(_) => {}
        }
        let credential = credential::of(knock.headers).map_err(Refused::nameless)?;
        let caller = self.callers.resolve(credential).await;
        let caller = caller.map_err(Refused::nameless)?;
        if !access.is_open_to(caller.permissions) {
            let status = refusal::denied(&caller.principal, &caller.roles, access, knock.method);
            return Err(Refused {
                principal: Some(caller.principal.clone()),
                status,
            });
        }
        let reach = access.reach(caller.permissions);
        // A name of no method is in front of a request whose method is counted.
        let held = match access {
            MethodAccess::Caller => None,
            _ => self.enter(&caller, knock.streams)?,
        };
        Ok(Admission {
            principal: caller.principal.clone(),
            key_id: caller.subject.key_id(),
            reach,
            ended: Some(self.ended(caller, access, reach, &knock)),
            held,
        })
    }

    /// Counts a call where the tenant has limits.
    fn enter(&self, caller: &Caller, is_stream: bool) -> Result<CallGuard, Refused> {
        let Some(limits) = caller.limits else {
            return Ok(None);
        };
        let entered =
            self.limits
                .enter(caller.principal.tenant(), limits, is_stream, Instant::now());
        let entered = entered.map_err(|failure| Refused {
            principal: Some(caller.principal.clone()),
            status: failure.into_status(),
        })?;
        Ok(entered.map(|stream| Box::new(stream) as Box<dyn Any + Send + Sync>))
    }

    /// Completes when a caller may no longer have the open stream of a method. It watches only once it is
    /// polled, so that an answer of one message costs nothing.
    fn ended(
        &self,
        caller: Arc<Caller>,
        access: MethodAccess,
        reach: Reach,
        knock: &Knock<'_>,
    ) -> BoxFuture<'static, Status> {
        let door = self.clone();
        let (method, peer) = (Box::<str>::from(knock.method), knock.peer);
        let ended = async move {
            let subject = caller.subject.clone();
            let ended = door
                .standings
                .ended(subject, (access, reach), caller.expires);
            let end = ended.await;
            let status = match end {
                End::Unproven => refusal::unauthenticated(),
                End::Closed => tenancy::closed(caller.principal.tenant()).into_status(),
                End::Unknown => refusal::registry_away(),
                End::Denied => refusal::denied(&caller.principal, &caller.roles, access, &method),
            };
            let principal = Some(&caller.principal);
            door.record(principal, &method, &status, peer).await;
            status
        };
        ended.boxed()
    }
}

/// A refusal, with the principal where it is known.
struct Refused {
    principal: Option<Principal>,
    status: Status,
}

impl Refused {
    fn nameless(status: Status) -> Self {
        Self {
            principal: None,
            status,
        }
    }
}

impl Door for ClientDoor {
    fn admit<'a>(&'a self, knock: Knock<'a>) -> BoxFuture<'a, Result<Admission, Status>> {
        let decided = async move {
            match self.decide(knock).await {
                Ok(admission) => Ok(admission),
                Err(Refused { principal, status }) => {
                    let recorded =
                        self.record(principal.as_ref(), knock.method, &status, knock.peer);
                    recorded.await;
                    Err(status)
                }
            }
        };
        decided.boxed()
    }
}
