//! The caller whom a credential proves, remembered for a few seconds.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tonic::Status;

use super::credential::{CredentialHash, TICKET};
use super::held::{Held, HeldCaller};
use super::registry::{Caller, Registry, Subject};

/// The time for which an answer is used again.
const REMEMBERED: Duration = Duration::from_secs(3);

/// The most answers that are remembered; further ones are requested each time.
const MAX_REMEMBERED: usize = 10_000;

/// The callers of credentials.
#[derive(Clone, Debug)]
pub(super) struct Callers {
    registry: Registry,
    held: Held,
    /// Locked for a look-up or a change, never across an await.
    known: Arc<Mutex<HashMap<CredentialHash, RememberedCaller>>>,
}

#[derive(Debug)]
struct RememberedCaller {
    caller: Arc<Caller>,
    /// The time at which the registry was asked.
    asked: Instant,
}

impl RememberedCaller {
    fn is_fresh(&self) -> bool {
        let has_expired = self.caller.expires.is_some_and(|end| end <= Instant::now());
        self.asked.elapsed() < REMEMBERED && !has_expired
    }
}

impl Callers {
    pub(super) fn new(registry: Registry) -> Self {
        Self {
            registry,
            held: Held::default(),
            known: Arc::default(),
        }
    }

    /// Returns the caller whom a credential proves; an empty one proves a caller while no key exists.
    ///
    /// # Errors
    /// `UNAUTHENTICATED`; `TENANT_CLOSED`; `UNAVAILABLE` while the registry is away.
    pub(super) async fn resolve(&self, credential: &str) -> Result<Arc<Caller>, Status> {
        if credential.is_empty() {
            return self.registry.resolve(credential).await.map(Arc::new);
        }
        let hash = CredentialHash::of(credential);
        if let Some(caller) = self.remembered(&hash) {
            return Ok(caller);
        }
        let asked = Instant::now();
        let caller = match self.held.subject(&hash) {
            Some(subject) => self.registry.renew(&subject).await?,
            None => self.registry.resolve(credential).await?,
        };
        let caller = Arc::new(caller);
        let is_for_once = credential.starts_with(TICKET);
        if caller.subject != Subject::Open && !is_for_once {
            let caller = Arc::clone(&caller);
            self.remember(hash, RememberedCaller { caller, asked });
        }
        Ok(caller)
    }

    /// Uses up a ticket, and returns its caller for as long as it is held; `None` while no key exists.
    ///
    /// # Errors
    /// `UNAUTHENTICATED`; `TENANT_CLOSED`; `UNAVAILABLE` while the registry is away.
    pub(super) async fn hold(&self, ticket: &str) -> Result<Option<HeldCaller>, Status> {
        let caller = self.registry.resolve(ticket).await?;
        Ok(match caller.subject {
            Subject::Open => None,
            subject => Some(self.held.hold(subject)),
        })
    }

    fn remembered(&self, hash: &CredentialHash) -> Option<Arc<Caller>> {
        let known = self.known();
        let known = known.get(hash).filter(|known| known.is_fresh());
        known.map(|known| Arc::clone(&known.caller))
    }

    fn remember(&self, hash: CredentialHash, answer: RememberedCaller) {
        let mut known = self.known();
        if known.len() >= MAX_REMEMBERED {
            known.retain(|_, known| known.is_fresh());
        }
        if known.len() < MAX_REMEMBERED {
            known.insert(hash, answer);
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<CredentialHash, RememberedCaller>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
