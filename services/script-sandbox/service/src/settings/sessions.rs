//! The settings of sessions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use settings::Problems;

/// Settings of sessions.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SessionSettings {
    /// The most sessions that live at once. One more replaces an evictable idle one of the tenant with most, or of its
    /// own, or is refused.
    /// They do not count in `concurrent_scripts`. 0: none. Default 16.
    pub maximum: u32,
    /// The most sessions of one caller at once. One more replaces an evictable idle session of the
    /// same caller, or is refused. Default 8.
    pub per_caller: u32,
    /// The most ended sessions that are remembered; the oldest of the tenant with most of them is forgotten first.
    /// Default 256.
    pub remembered: u32,
}

impl Default for SessionSettings {
    fn default() -> Self {
        Self {
            maximum: 16,
            per_caller: 8,
            remembered: 256,
        }
    }
}

impl SessionSettings {
    /// Adds every fault of these settings.
    pub(crate) fn check(&self, problems: &mut Problems) {
        for (name, value, least) in [
            ("maximum", self.maximum, 0),
            ("per_caller", self.per_caller, 1),
            ("remembered", self.remembered, 1),
        ] {
            if !(least..=500).contains(&value) {
                let remedy = format!("give a number from {least} to 500");
                problems.add(format!("sessions.{name}"), format!("is {value}"), remedy);
            }
        }
    }
}
