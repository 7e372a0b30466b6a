//! The settings of sessions.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use settings::Problems;

/// What an operator can choose about sessions.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionSettings {
    /// How many sessions live at once. One more is refused. They are no part of
    /// `concurrent_scripts`. Default 16.
    pub maximum: u32,
    /// How many sessions of one caller live at once. Default 8.
    pub maximum_per_caller: u32,
    /// How long a session may go without a cell if its request does not say. Default `10m`.
    #[serde(with = "settings::duration")]
    pub default_idle_time: Duration,
    /// The most that a request can ask for. Default `1h`.
    #[serde(with = "settings::duration")]
    pub maximum_idle_time: Duration,
    /// How long a session may live if its request does not say. Default `1h`.
    #[serde(with = "settings::duration")]
    pub default_total_time: Duration,
    /// The most that a request can ask for. Default `12h`.
    #[serde(with = "settings::duration")]
    pub maximum_total_time: Duration,
    /// Processor time of a session whose request does not say; all other limits are those of
    /// scripts. Default `5m`.
    #[serde(with = "settings::duration")]
    pub default_cpu_time: Duration,
    /// The most that a request can ask for. Default `1h`.
    #[serde(with = "settings::duration")]
    pub maximum_cpu_time: Duration,
    /// How long a cell may take to end when a limit of its own, or the loss of its caller, has
    /// interrupted it. Then the session ends. Default `2s`.
    #[serde(with = "settings::duration")]
    pub interrupt_grace: Duration,
    /// How many sessions are remembered that have ended; the oldest one of the caller who has most of
    /// them is forgotten first. Default 256.
    pub remembered: u32,
}

impl Default for SessionSettings {
    fn default() -> Self {
        Self {
            maximum: 16,
            maximum_per_caller: 8,
            default_idle_time: Duration::from_secs(600),
            maximum_idle_time: Duration::from_secs(3600),
            default_total_time: Duration::from_secs(3600),
            maximum_total_time: Duration::from_secs(12 * 3600),
            default_cpu_time: Duration::from_secs(300),
            maximum_cpu_time: Duration::from_secs(3600),
            interrupt_grace: Duration::from_secs(2),
            remembered: 256,
        }
    }
}

impl SessionSettings {
    /// Adds everything that is wrong.
    pub(crate) fn check(&self, problems: &mut Problems) {
        const DAY: Duration = Duration::from_secs(24 * 3600);
        let counts = [
            ("maximum", self.maximum, 0),
            ("maximum_per_caller", self.maximum_per_caller, 1),
            ("remembered", self.remembered, 1),
        ];
        for (name, value, least) in counts {
            if !(least..=500).contains(&value) {
                let remedy = format!("give a number from {least} to 500");
                problems.add(format!("sessions.{name}"), format!("is {value}"), remedy);
            }
        }
        let times = [
            (
                "default_idle_time",
                self.default_idle_time,
                self.maximum_idle_time,
            ),
            ("maximum_idle_time", self.maximum_idle_time, DAY),
            (
                "default_total_time",
                self.default_total_time,
                self.maximum_total_time,
            ),
            ("maximum_total_time", self.maximum_total_time, DAY),
            (
                "default_cpu_time",
                self.default_cpu_time,
                self.maximum_cpu_time,
            ),
            ("maximum_cpu_time", self.maximum_cpu_time, DAY),
            (
                "interrupt_grace",
                self.interrupt_grace,
                Duration::from_secs(30),
            ),
        ];
        for (name, value, most) in times {
            if value.is_zero() || value > most {
                let print = settings::duration::print;
                problems.add(
                    format!("sessions.{name}"),
                    format!("is {}", print(value)),
                    format!("give a time above zero and up to {}", print(most)),
                );
            }
        }
    }
}
