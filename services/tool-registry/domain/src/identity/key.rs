//! Keys, from their creation to their end.

use std::time::Duration;

use core_types::Timestamp;
use serde::{Deserialize, Serialize};

/// The length of a day.
pub const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The longest life of a key, in days.
pub const MAX_DAYS: u32 = 365;

/// The time for which a key is kept after its end.
const KEPT: Duration = Duration::from_secs(30 * DAY.as_secs());

/// A key without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// The id, which is part of a made key.
    pub id: String,
    /// The origin, which decides the text of the digest.
    pub origin: KeyOrigin,
    /// A SHA-256 in lower-case hexadecimal digits.
    pub sha256: String,
    /// The names of the permissions to which it narrows the roles; empty for all of them.
    pub scopes: Vec<String>,
    /// The id of the first of the keys of which each replaces another.
    pub family: String,
    /// The life for which it was made, in days.
    pub days: u32,
    /// The time of its creation.
    pub created: Timestamp,
    /// The time from which it proves no principal.
    pub expires: Timestamp,
    /// The time at which it was revoked.
    pub revoked: Option<Timestamp>,
}

/// The origin of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyOrigin {
    /// It was made here; the digest is of its secret.
    Made,
    /// It came with an approver of a file; the digest is of the whole text.
    Imported,
}

impl Key {
    /// Makes the first key of a family. `days` is from 1 to [`MAX_DAYS`].
    pub fn new(
        (id, sha256): (String, String),
        origin: KeyOrigin,
        scopes: Vec<String>,
        days: u32,
        now: Timestamp,
    ) -> Self {
        Self {
            family: id.clone(),
            id,
            origin,
            sha256,
            scopes,
            days,
            created: now,
            expires: now.plus(DAY * days),
            revoked: None,
        }
    }

    /// Whether it proves its principal.
    pub fn is_valid(&self, now: Timestamp) -> bool {
        self.revoked.is_none() && now < self.expires
    }

    /// Whether it is still kept, so that lists show it.
    pub fn is_kept(&self, now: Timestamp) -> bool {
        let end = self.revoked.unwrap_or(self.expires).min(self.expires);
        now < end.plus(KEPT)
    }

    /// Whether it leaves its principal a permission.
    pub fn permits(&self, permission: &str) -> bool {
        self.scopes.is_empty() || self.scopes.iter().any(|scope| scope == permission)
    }

    pub(super) fn revoke(&mut self, now: Timestamp) {
        self.revoked.get_or_insert(now);
    }
}
