//! Callers, as the registry resolves them.

use std::sync::Arc;
use std::time::Duration;

use contracts::tavern::registry::v1 as proto;
use core_types::{Clock, Principal, SystemClock};
use grpc_kit::CallContext;
use tokio::time::Instant;
use tonic::{Code, Status};

use super::credential::{MAX_CREDENTIAL, TICKET};
use super::refusal;
use super::rights::{PermissionSet, Permissions};
use crate::Peers;

/// A caller with its rights.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    pub(super) principal: Principal,
    pub(super) roles: Vec<String>,
    pub(super) permissions: Permissions,
    pub(super) subject: Subject,
    /// The bounds of its tenant that the door keeps.
    pub(super) limits: Option<proto::DoorLimits>,
    /// The end of its credential; `None` where only the end of the key counts.
    pub(super) expires: Option<Instant>,
}

/// The proof of a caller, by which its rights are looked up again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Subject {
    /// No key exists.
    Open,
    /// A key of a principal, or a token of an issuer, for which an id stands too.
    Key {
        principal: Principal,
        key_id: Arc<str>,
    },
}

impl Subject {
    /// Returns the id of the key.
    pub(super) fn key_id(&self) -> Option<Arc<str>> {
        match self {
            Self::Open => None,
            Self::Key { key_id, .. } => Some(Arc::clone(key_id)),
        }
    }
}

/// The registry, of which callers are requested within a time.
#[derive(Clone, Debug)]
pub(super) struct Registry {
    peers: Peers,
    timeout: Duration,
}

impl Registry {
    pub(super) fn new(peers: &Peers, timeout: Duration) -> Self {
        Self {
            peers: peers.clone(),
            timeout,
        }
    }

    /// Returns the caller whom a credential proves; an empty one proves a caller while no key exists.
    ///
    /// # Errors
    /// `UNAUTHENTICATED`; `TENANT_CLOSED`; `UNAVAILABLE` while the registry is away.
    pub(super) async fn resolve(&self, credential: &str) -> Result<Caller, Status> {
        let request = proto::ResolveCredentialRequest {
            credential: credential.to_owned(),
        };
        let mut identities = self.peers.identities(&self.context());
        let answer = identities.resolve_credential(request).await;
        let answer = answer.map_err(|status| refused(&status))?.into_inner();
        let mut caller = read(answer.caller)?;
        if credential.starts_with(TICKET) {
            // It is used up already, and the key behind it counts.
            caller.expires = None;
        }
        Ok(caller)
    }

    /// Returns a caller with its present rights.
    ///
    /// # Errors
    /// `UNAUTHENTICATED`; `TENANT_CLOSED`; `UNAVAILABLE` while the registry is away.
    pub(super) async fn renew(&self, subject: &Subject) -> Result<Caller, Status> {
        let Subject::Key { principal, key_id } = subject else {
            return self.resolve("").await;
        };
        let request = proto::ResolvePrincipalRequest {
            principal: principal.as_str().to_owned(),
            key_id: key_id.to_string(),
        };
        let mut identities = self.peers.identities(&self.context());
        let answer = identities.resolve_principal(request).await;
        let answer = answer.map_err(|status| refused(&status))?.into_inner();
        read(answer.caller)
    }

    /// Returns the token of a login by a key.
    ///
    /// # Errors
    /// `UNAUTHENTICATED`; `TENANT_CLOSED`; `UNAVAILABLE` while the registry is away.
    pub(super) async fn login(&self, key: &str) -> Result<proto::LoginResponse, Status> {
        let request = proto::LoginRequest {
            key: short(key).to_owned(),
        };
        let mut identities = self.peers.identities(&self.context());
        let answer = identities.login(request).await;
        Ok(answer.map_err(|status| refused(&status))?.into_inner())
    }

    /// Returns a ticket that stands for a credential once.
    ///
    /// # Errors
    /// `UNAUTHENTICATED`; `TENANT_CLOSED`; `LIMIT_EXCEEDED` while too many tickets are open; `UNAVAILABLE` while
    /// the registry is away.
    pub(super) async fn issue_ticket(
        &self,
        credential: &str,
    ) -> Result<proto::IssueTicketResponse, Status> {
        let request = proto::IssueTicketRequest {
            credential: credential.to_owned(),
        };
        let mut identities = self.peers.identities(&self.context());
        let answer = identities.issue_ticket(request).await;
        Ok(answer.map_err(|status| refused(&status))?.into_inner())
    }

    fn context(&self) -> CallContext {
        CallContext::outermost().with_timeout(self.timeout)
    }
}

/// Returns a key, or nothing in place of a text that is too long for one.
fn short(key: &str) -> &str {
    match key.len() {
        ..=MAX_CREDENTIAL => key,
        _ => "",
    }
}

/// Translates a failure of the registry: a client learns that its credential is bad, that it has to wait, or
/// that nothing is known.
fn refused(status: &Status) -> Status {
    match status.code() {
        Code::Unauthenticated => refusal::unauthenticated(),
        // A closed tenant, or a limit.
        Code::FailedPrecondition | Code::ResourceExhausted => status.clone(),
        _ => {
            tracing::debug!(%status, "a credential could not be resolved");
            refusal::registry_away()
        }
    }
}

fn read(caller: Option<proto::Caller>) -> Result<Caller, Status> {
    let caller = caller.unwrap_or_default();
    let principal = Principal::new(&caller.principal);
    let principal = principal.map_err(|error| grpc_kit::internal(&error))?;
    let subject = match caller.open {
        true => Subject::Open,
        false => Subject::Key {
            principal: principal.clone(),
            key_id: caller.key_id.into(),
        },
    };
    Ok(Caller {
        principal,
        permissions: Permissions {
            in_tenant: PermissionSet::named(&caller.permissions),
            in_system: PermissionSet::named(&caller.system_permissions),
        },
        roles: caller.roles,
        limits: caller.limits,
        subject,
        expires: caller.expire_time.and_then(|time| until(&time)),
    })
}

/// Returns the time on the clock of this process; `None` where it is too far away to come.
fn until(time: &prost_types::Timestamp) -> Option<Instant> {
    let seconds = u64::try_from(time.seconds).unwrap_or_default();
    let now = SystemClock.now().unix_nanos() / 1_000_000_000;
    let left = seconds.saturating_sub(u64::try_from(now).unwrap_or_default());
    Instant::now().checked_add(Duration::from_secs(left))
}
