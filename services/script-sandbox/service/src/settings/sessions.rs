//! The settings of sessions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use settings::Problems;

/// What an operator can choose about sessions.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SessionSettings {
    /// How many sessions live at once. One more takes the place of an evictable one that is idle, or is
    /// refused. They are not counted in
    /// `concurrent_scripts`. 0: none. Default 16.
    pub maximum: u32,
    /// The most sessions of one caller at once. One more takes the place of an idle, evictable session of the
    /// same caller, or is refused. Default 8.
    pub per_caller: u32,
    /// How many sessions are remembered that have ended; the oldest is forgotten first. Default 256.
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
    /// Adds everything that is wrong.
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
