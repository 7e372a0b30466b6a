//! The settings of a database.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use settings::Problems;

use crate::DatabaseAddress;

/// The shortest and the longest lease.
const LEASES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(600)];

/// A PostgreSQL database in place of files in the data directory.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DatabaseSettings {
    /// The address, `postgres://user@host:5432/database`, with the password in PGPASSWORD. Empty: files in the data
    /// directory. Default: empty.
    pub address: DatabaseAddress,
    /// The time without a sign of this process after which another takes over its work, from `1s` to `10m`. Default
    /// `10s`.
    #[serde(with = "settings::DurationText")]
    pub lease: Duration,
}

impl Default for DatabaseSettings {
    fn default() -> Self {
        Self {
            address: DatabaseAddress::default(),
            lease: Duration::from_secs(10),
        }
    }
}

impl DatabaseSettings {
    /// Reports values out of range below the key `key`.
    pub fn check(&self, key: &str, problems: &mut Problems) {
        let [shortest, longest] = LEASES;
        if self.lease < shortest || self.lease > longest {
            let key = format!("{key}.lease");
            problems.add(&key, "is out of range", "give a time from 1s to 10m");
        }
    }
}
