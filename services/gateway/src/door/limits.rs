//! The limits of tenants that the door keeps: calls in a second, and open streams.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use contracts::tavern::registry::v1::DoorLimits;
use core_types::Tenant;
use grpc_kit::Failure;
use tenancy::{LimitReached, Quantity};
use tokio::time::Instant;

/// The calls and streams of tenants with limits. Clone, cheap; clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct TenantLimits {
    /// Locked for a look-up or a change, never across an await.
    tenants: Arc<Mutex<HashMap<Tenant, Counted>>>,
}

#[derive(Clone, Copy, Debug)]
struct Counted {
    /// The calls that may be made at once, up to those of a second.
    calls: f64,
    /// The time at which `calls` was counted.
    at: Instant,
    streams: u64,
}

/// An open stream of a tenant, counted until it is dropped.
#[derive(Debug)]
pub(super) struct OpenStream {
    limits: TenantLimits,
    tenant: Tenant,
}

impl TenantLimits {
    /// Counts a call of a tenant at `now`, and its stream if it is one. A bound of zero is none.
    ///
    /// # Errors
    /// `TENANT_LIMIT`.
    pub(super) fn enter(
        &self,
        tenant: Tenant,
        limits: DoorLimits,
        is_stream: bool,
        now: Instant,
    ) -> Result<Option<OpenStream>, Failure> {
        let (rate, most) = (limits.calls_per_second, limits.streams);
        let mut tenants = self.lock();
        let counted = tenants.entry(tenant).or_insert(Counted {
            calls: as_float(rate),
            at: now,
            streams: 0,
        });
        if is_stream && most > 0 && counted.streams >= most {
            return Err(reached(Quantity::Streams, most));
        }
        if rate > 0 {
            let earned = now.duration_since(counted.at).as_secs_f64() * as_float(rate);
            let calls = (counted.calls + earned).min(as_float(rate).max(1.0));
            if calls < 1.0 {
                return Err(reached(Quantity::CallsPerSecond, rate));
            }
            (counted.calls, counted.at) = (calls - 1.0, now);
        }
        if !is_stream {
            return Ok(None);
        }
        counted.streams += 1;
        drop(tenants);
        let limits = self.clone();
        Ok(Some(OpenStream { limits, tenant }))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Tenant, Counted>> {
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        if let Some(counted) = self.limits.lock().get_mut(&self.tenant) {
            counted.streams -= 1;
        }
    }
}

fn reached(quantity: Quantity, maximum: u64) -> Failure {
    LimitReached { quantity, maximum }.into()
}

/// Returns a rate as a number of calls; one beyond all numbers of calls is as good as none.
fn as_float(rate: u64) -> f64 {
    u32::try_from(rate).map_or(f64::from(u32::MAX), f64::from)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn limits(calls_per_second: u64, streams: u64) -> DoorLimits {
        DoorLimits {
            calls_per_second,
            streams,
        }
    }

    fn tenant(name: &str) -> Tenant {
        Tenant::new(name).unwrap()
    }

    #[test]
    fn the_calls_of_a_second_pass_and_further_ones_when_time_has_passed() {
        let (tenants, limits) = (TenantLimits::default(), limits(10, 0));
        let begin = Instant::now();
        let passed = |after: Duration| {
            let mut calls = 0..20;
            let enter = |_: &i32| {
                tenants
                    .enter(tenant("a"), limits, false, begin + after)
                    .is_ok()
            };
            calls.by_ref().filter(enter).count()
        };
        assert_eq!(passed(Duration::ZERO), 10);
        assert_eq!(passed(Duration::from_millis(300)), 3);
        assert_eq!(passed(Duration::from_secs(60)), 10);
        let other = tenants.enter(tenant("b"), limits, false, begin);
        assert!(other.is_ok());
    }

    #[test]
    fn a_stream_counts_until_it_ends() {
        let (tenants, limits) = (TenantLimits::default(), limits(0, 2));
        let now = Instant::now();
        let open = || tenants.enter(tenant("a"), limits, true, now);
        let (first, _second) = (open().unwrap(), open().unwrap());
        open().unwrap_err();
        tenants.enter(tenant("a"), limits, false, now).unwrap();
        tenants.enter(tenant("b"), limits, true, now).unwrap();
        drop(first);
        open().unwrap();
    }
}
