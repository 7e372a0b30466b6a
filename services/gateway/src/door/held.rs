//! Callers whose ticket is used up while their socket is open.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

use super::credential::CredentialHash;
use super::registry::Subject;

/// The beginning of the credentials that stand for held callers, and leave this process never.
const PREFIX: &str = "tvh_";

/// The held callers by the credentials that stand for them: as many as there are open sockets.
#[derive(Clone, Debug, Default)]
pub(super) struct Held(Arc<Mutex<HashMap<CredentialHash, Subject>>>);

/// A caller that is held until this is dropped.
pub(crate) struct HeldCaller {
    held: Held,
    credential: String,
}

impl Held {
    pub(super) fn hold(&self, subject: Subject) -> HeldCaller {
        let credential = format!("{PREFIX}{}", Uuid::new_v4().simple());
        self.callers()
            .insert(CredentialHash::of(&credential), subject);
        HeldCaller {
            held: self.clone(),
            credential,
        }
    }

    /// Returns the held caller for whom a credential stands.
    pub(super) fn subject(&self, hash: &CredentialHash) -> Option<Subject> {
        self.callers().get(hash).cloned()
    }

    fn callers(&self) -> MutexGuard<'_, HashMap<CredentialHash, Subject>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HeldCaller {
    /// Returns the credential that stands for the caller at the door.
    pub(crate) fn credential(&self) -> &str {
        &self.credential
    }
}

impl fmt::Debug for HeldCaller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HeldCaller")
    }
}

impl Drop for HeldCaller {
    fn drop(&mut self) {
        let hash = CredentialHash::of(&self.credential);
        self.held.callers().remove(&hash);
    }
}
