//! The suspension of a hook that fails again and again (rule R204).

use std::time::Duration;

use tokio::time::Instant;

/// The failures in a row that suspend a hook.
const FAILURES_TO_SUSPEND: u32 = 5;

/// The time between two probes of a suspended hook.
const PROBE_PERIOD: Duration = Duration::from_secs(30);

/// The health of a hook.
#[derive(Clone, Debug, Default)]
pub struct Health {
    failures: u32,
    next_probe: Option<Instant>,
    last_failure: &'static str,
}

impl Health {
    /// Whether the hook is to be asked now: it is not suspended, or this is its probe.
    pub fn admits(&mut self, now: Instant) -> bool {
        match &mut self.next_probe {
            None => true,
            Some(probe) if *probe <= now => {
                *probe = now + PROBE_PERIOD;
                true
            }
            Some(_) => false,
        }
    }

    /// Records a decision.
    pub fn decided(&mut self) {
        *self = Self::default();
    }

    /// Records a failure.
    pub fn failed(&mut self, code: &'static str, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        self.last_failure = code;
        if self.failures >= FAILURES_TO_SUSPEND {
            self.next_probe = Some(now + PROBE_PERIOD);
        }
    }

    /// Whether the hook is suspended.
    pub fn is_suspended(&self) -> bool {
        self.next_probe.is_some()
    }

    /// Returns the failures since its last decision.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Returns the code of the last failure since its last decision; empty without one. It has no word of an act, as all
    /// tenants may read it.
    pub fn last_failure(&self) -> &'static str {
        self.last_failure
    }
}
