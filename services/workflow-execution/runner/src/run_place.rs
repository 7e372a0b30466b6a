//! The place of a run among the active ones.

use std::convert::Infallible;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use core_types::{MAX_CALL_DEPTH, Tenant, Timestamp};
use grpc_kit::Failure;
use run_events::{Recorder, RunControl};
use run_log::AppendError;
use tenancy::{Quantity, Tenants, Use};

use super::permits::{Admission, Limit, Permit, Permits, QueuePlace, Turn};
use super::run_keys::RunKey;

/// The pause before a retry of a run that a full queue refused.
const RETRY: Duration = Duration::from_secs(1);

/// The most runs in each state at once.
#[derive(Clone, Copy, Debug)]
pub struct RunBounds {
    /// Active runs of the same depth of nesting.
    pub active: usize,
    /// Queued runs of a tenant.
    pub queued: usize,
    /// Runs that only wait.
    pub waiting: usize,
}

/// The tenant, the depth, the priority and the key of a run, which decide its turn.
#[derive(Debug)]
pub struct RunEntry {
    /// Its tenant.
    pub tenant: Tenant,
    /// The number of runs above it.
    pub depth: usize,
    /// The start of its wait.
    pub since: Timestamp,
    /// Its priority, 0 to 9.
    pub priority: u32,
    /// The key under which it continues alone.
    pub key: Option<RunKey>,
}

/// The places of runs.
#[derive(Clone, Debug)]
pub struct RunPlaces {
    permits: Permits,
    bounds: RunBounds,
    tenants: Tenants,
}

impl RunPlaces {
    /// Builds the places within the bounds, for tenants with weights and limits.
    pub fn new(bounds: RunBounds, tenants: Tenants) -> Self {
        Self {
            permits: Permits::default(),
            bounds,
            tenants,
        }
    }

    /// Reserves a place for a new run, or a place in the queue.
    ///
    /// # Errors
    /// OVERLOADED if the tenant has as many queued runs as each may have. TENANT_LIMIT and TENANT_CLOSED if the tenant may have no more queued runs; a run
    /// below another belongs to its work, which no limit of the tenant stops.
    pub fn enter(&self, entry: RunEntry) -> Result<RunPlace, Failure> {
        let (tenant, is_outermost) = (entry.tenant, entry.depth == 0);
        self.ask(entry, |queued| {
            if is_outermost {
                let queued = u64::try_from(queued).unwrap_or(u64::MAX);
                self.tenants.admit(tenant, Quantity::QueuedRuns, queued)?;
            }
            match queued >= self.bounds.queued {
                true => Err(Failure::overloaded(RETRY)),
                false => Ok(()),
            }
        })
    }

    /// Reserves the place in the queue that a run had before a restart.
    pub fn enter_again(&self, entry: RunEntry) -> RunPlace {
        let Ok(place) = self.ask(entry, |_| Ok::<_, Infallible>(()));
        place
    }

    /// Returns the number of queued runs of each tenant.
    pub fn uses(&self) -> Vec<Use> {
        let queued = self.permits.waiting_by_tenant().into_iter();
        let uses = queued.map(|(tenant, queued)| Use {
            tenant,
            quantity: Quantity::QueuedRuns,
            amount: u64::try_from(queued).unwrap_or(u64::MAX),
        });
        uses.collect()
    }

    /// Reserves a place for a run that had one before a restart, even beyond the bounds.
    pub fn resume(&self, entry: RunEntry) -> RunPlace {
        let limits = self.limits(&entry).into_iter().map(|(limit, _)| limit);
        let permit = self.permits.take(limits.collect());
        self.place(entry, Admission::Now(permit))
    }

    fn ask<E>(
        &self,
        entry: RunEntry,
        may_wait: impl FnOnce(usize) -> Result<(), E>,
    ) -> Result<RunPlace, E> {
        let (bounds, place) = (self.limits(&entry), self.in_queue(&entry));
        let admission = self.permits.ask(bounds, place, may_wait)?;
        Ok(self.place(entry, admission))
    }

    fn in_queue(&self, entry: &RunEntry) -> QueuePlace {
        QueuePlace {
            tenant: entry.tenant,
            weight: self.tenants.weight(entry.tenant),
            since: entry.since,
            priority: entry.priority,
        }
    }

    fn limits(&self, entry: &RunEntry) -> Vec<(Limit, usize)> {
        let key = entry.key.as_ref().map(|key| {
            let (tenant, key) = key.name().clone();
            (Limit::RunKey(tenant, key), 1)
        });
        let active = (depth(entry.depth), self.bounds.active);
        key.into_iter().chain([active]).collect()
    }

    fn place(&self, entry: RunEntry, admission: Admission) -> RunPlace {
        let (held, queued) = match admission {
            Admission::Now(permit) => (Some(permit), None),
            Admission::Later(turn) => (None, Some(turn)),
        };
        RunPlace {
            queued,
            held: Mutex::new(HeldPermits {
                place: held,
                resting: None,
            }),
            entry,
            places: self.clone(),
        }
    }
}

fn depth(depth: usize) -> Limit {
    Limit::Runs(depth.min(MAX_CALL_DEPTH))
}

/// The place of a run: in the queue, then among the active runs, until it only waits.
#[derive(Debug)]
pub struct RunPlace {
    /// The turn of a queued run.
    queued: Option<Turn>,
    /// Locked for a change, never across an await.
    held: Mutex<HeldPermits>,
    entry: RunEntry,
    places: RunPlaces,
}

#[derive(Debug)]
struct HeldPermits {
    /// The key of the run, and its place among the active runs.
    place: Option<Permit>,
    /// Its place among the runs that only wait.
    resting: Option<Permit>,
}

impl RunPlace {
    /// Returns whether the run has to wait for its turn.
    pub fn is_queued(&self) -> bool {
        self.queued.is_some()
    }

    /// Returns the key under which the run continues alone.
    pub fn key_mut(&mut self) -> Option<&mut RunKey> {
        self.entry.key.as_mut()
    }

    /// Whether the run continues alone under a key.
    pub(super) fn has_key(&self) -> bool {
        self.entry.key.is_some()
    }

    pub(super) fn priority(&self) -> u32 {
        self.entry.priority
    }

    /// Waits for the run's turn and records it. Returns early when the run shall end. The turn of a
    /// paused run comes when it is resumed.
    ///
    /// # Errors
    /// [`AppendError`] when it was not stored.
    pub(super) async fn turn(
        &mut self,
        recorder: &Recorder,
        control: &RunControl,
    ) -> Result<(), AppendError> {
        if let Some(turn) = self.queued.take() {
            let permit = tokio::select! {
                permit = turn => permit,
                () = control.cancelled() => return Ok(()),
            };
            self.held().place = Some(permit);
        }
        while recorder.is_queued() {
            tokio::select! {
                () = control.until_resumed() => {}
                () = control.cancelled() => return Ok(()),
            }
            if let Some(not_paused) = control.admit_start().await {
                recorder.dequeue(not_paused).await?;
            }
        }
        Ok(())
    }

    /// Exchanges the place for a place among the runs that only wait, if one is free. The run keeps
    /// that when it continues, so that it never waits for a place. It keeps its key.
    pub(super) fn rest(&self) {
        let mut held = self.held();
        if held.resting.is_some() {
            return;
        }
        let (places, entry) = (&self.places, &self.entry);
        let bounds = vec![(Limit::WaitingRuns, places.bounds.waiting)];
        let asked = places
            .permits
            .ask(bounds, places.in_queue(entry), |_| Err(()));
        if let Ok(Admission::Now(resting)) = asked {
            held.resting = Some(resting);
            if let Some(permit) = &mut held.place {
                permit.give_back(&depth(entry.depth));
            }
        }
    }

    fn held(&self) -> std::sync::MutexGuard<'_, HeldPermits> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
