//! Results of nodes that other nodes reuse (rules W45 to W47).
//!
//! All results are listed in memory; outputs that were not used lately are read from the database.
//! Changes are written later: a result that a crash loses is computed again.

pub(super) mod asked;
mod flights;
mod lru;
mod store;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use core_types::{Tenant, Timestamp};
use sql_store::StoreError;
use tokio::sync::{mpsc, oneshot};

use workflow_domain::cache_key::{CacheKey, KeyParts};

pub(super) use flights::Flight;
use flights::Flights;
use lru::Lru;
pub use store::{LastResult, ResultChange, ResultRow, ResultStore, TenantKey};

/// The most bytes of all results.
const MAX_BYTES: usize = 1024 * 1024 * 1024;

/// The most results that are kept.
const MAX_RESULTS: usize = 100_000;

/// The most bytes of outputs in memory.
const MAX_BYTES_IN_MEMORY: usize = 32 * 1024 * 1024;

/// The most nodes whose last result is known.
const MAX_NODES: usize = 10_000;

/// The size of a result apart from its outputs, in bytes.
const OVERHEAD: usize = 256;

/// The most changes that wait to be written; beyond it results are not kept.
const MAX_UNWRITTEN: usize = 1_024;

/// The most changes in one write.
const MAX_BATCH: usize = 128;

/// The shortest time between two written uses of a result.
const USES_WRITTEN_AFTER: Duration = Duration::from_secs(10 * 60);

/// The longest wait of a node for another that is computing its result.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// The results of nodes.
#[derive(Debug)]
pub struct ResultCache {
    held: Mutex<HeldResults>,
    flights: Flights,
    store: Arc<dyn ResultStore>,
    changes: mpsc::Sender<Change>,
}

#[derive(Debug)]
enum Change {
    Write(ResultChange),
    /// Answered once all earlier changes are written.
    Flush(oneshot::Sender<()>),
}

#[derive(Debug)]
struct HeldResults {
    results: Lru<TenantKey, Kept>,
    outputs: Lru<TenantKey, Arc<str>>,
    last: Lru<TenantKey, (CacheKey, KeyParts)>,
}

#[derive(Clone, Debug)]
struct Kept {
    run_id: Arc<str>,
    at: Timestamp,
    /// The time of the last written use.
    used: Timestamp,
}

/// A result that is reused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hit {
    /// The outputs as a JSON object.
    pub(super) outputs: Arc<str>,
    /// The run that computed it.
    pub(super) run_id: Arc<str>,
    /// The time at which it was stored.
    pub(super) at: Timestamp,
}

/// The reason for which no result is reused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Miss {
    /// The node had no result before.
    First,
    /// These parts of its dependencies have changed.
    Changed(Vec<String>),
    /// The result is too old.
    Expired,
    /// The result was dropped.
    Evicted,
    /// The node does not read results.
    Refreshed,
    /// A tool that the result depends on is not read-only.
    NotReadOnly,
}

/// A result that a node wants.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    /// The tenant of the run.
    pub(super) tenant: Tenant,
    /// The name of the node.
    pub(super) node: CacheKey,
    /// The key of the result.
    pub(super) key: CacheKey,
    /// Its dependencies.
    pub(super) parts: KeyParts,
}

impl Wanted {
    fn result(&self) -> TenantKey {
        (self.tenant, self.key)
    }

    fn node(&self) -> TenantKey {
        (self.tenant, self.node)
    }
}

/// The result of a lookup.
#[derive(Debug)]
pub(super) enum CacheLookup {
    Hit(Hit),
    /// No result. Other nodes that want the same one wait until the flight is dropped, if this node
    /// has it.
    Miss(Miss, Option<Flight>),
}

impl ResultCache {
    /// Reads the stored results.
    ///
    /// # Errors
    /// The database failed or is damaged.
    pub async fn open(store: Arc<dyn ResultStore>) -> Result<Arc<Self>, StoreError> {
        let mut held = HeldResults {
            results: Lru::new(MAX_BYTES, MAX_RESULTS),
            outputs: Lru::new(MAX_BYTES_IN_MEMORY, MAX_RESULTS),
            last: Lru::new(usize::MAX, MAX_NODES),
        };
        let mut dropped = Vec::new();
        for row in store.all().await? {
            let kept = Kept {
                run_id: row.run_id.into(),
                at: row.kept,
                used: row.kept,
            };
            let gone = held.results.put(row.key, kept, row.bytes + OVERHEAD);
            dropped.extend(gone.into_iter().map(ResultChange::Dropped));
        }
        for last in store.last().await? {
            let gone = held
                .last
                .put((last.tenant, last.node), (last.key, last.parts), 0);
            dropped.extend(gone.into_iter().map(ResultChange::NodeDropped));
        }
        if !dropped.is_empty() {
            store.write(&dropped).await?;
        }
        let (changes, received) = mpsc::channel(MAX_UNWRITTEN);
        tokio::spawn(write(Arc::clone(&store), received));
        Ok(Arc::new(Self {
            held: Mutex::new(held),
            flights: Flights::default(),
            store,
            changes,
        }))
    }

    /// Waits until all changes are written.
    pub async fn flush(&self) {
        let (written, done) = oneshot::channel();
        if self.changes.send(Change::Flush(written)).await.is_ok() {
            // An error means that the writing task has ended, and its unwritten changes are lost.
            done.await.ok();
        }
    }

    /// Forgets the results of a tenant whose rows are to be removed from the store, once all earlier changes are written.
    pub async fn forget_tenant(&self, tenant: Tenant) {
        {
            let mut held = self.lock();
            let of_tenant = |key: &TenantKey| key.0 == tenant;
            held.results.remove_all(of_tenant);
            held.outputs.remove_all(of_tenant);
            held.last.remove_all(of_tenant);
        }
        self.flush().await;
    }

    /// Looks up a result that is at most as old as `ttl`. Waits if another node is computing it.
    pub(super) async fn find(
        &self,
        wanted: &Wanted,
        ttl: Option<Duration>,
        now: Timestamp,
    ) -> CacheLookup {
        let deadline = tokio::time::Instant::now() + LONGEST_WAIT;
        loop {
            let miss = match self.look(wanted, ttl, now).await {
                Ok(hit) => return CacheLookup::Hit(hit),
                Err(miss) => miss,
            };
            let mut under_way = match self.flights.begin(wanted.result()) {
                Ok(flight) => {
                    // Another node may have ended between the lookup and the start of the flight.
                    return match self.look(wanted, ttl, now).await {
                        Ok(hit) => CacheLookup::Hit(hit),
                        Err(_) => CacheLookup::Miss(miss, Some(flight)),
                    };
                }
                Err(under_way) => under_way,
            };
            let over = async { while under_way.changed().await.is_ok() {} };
            if tokio::time::timeout_at(deadline, over).await.is_err() {
                return CacheLookup::Miss(miss, None);
            }
        }
    }

    /// Looks up the present result.
    pub(super) async fn look(
        &self,
        wanted: &Wanted,
        ttl: Option<Duration>,
        now: Timestamp,
    ) -> Result<Hit, Miss> {
        let (kept, outputs) = {
            let mut held = self.lock();
            let Some(kept) = held.results.get(&wanted.result()) else {
                return Err(why(&mut held, wanted));
            };
            if now.since(kept.used) > USES_WRITTEN_AFTER {
                kept.used = now;
                // A use that is not written only lets the result be dropped earlier.
                let used = Change::Write(ResultChange::Used(wanted.result(), now));
                self.changes.try_send(used).ok();
            }
            let kept = kept.clone();
            if ttl.is_some_and(|ttl| now.since(kept.at) > ttl) {
                return Err(Miss::Expired);
            }
            (kept, held.outputs.get(&wanted.result()).cloned())
        };
        let outputs = match outputs {
            Some(outputs) => outputs,
            None => self.read(wanted).await.ok_or(Miss::Evicted)?,
        };
        Ok(Hit {
            outputs,
            run_id: kept.run_id,
            at: kept.at,
        })
    }

    /// Reads outputs from the database.
    async fn read(&self, wanted: &Wanted) -> Option<Arc<str>> {
        let read = self.store.outputs(&wanted.result()).await;
        let outputs: Option<Arc<str>> = read
            .inspect_err(|error| tracing::warn!(?error, "a result cannot be read"))
            .ok()
            .flatten()
            .map(Into::into);
        let mut held = self.lock();
        match &outputs {
            Some(outputs) => {
                let (outputs, weight) = (Arc::clone(outputs), outputs.len() + OVERHEAD);
                held.outputs.put(wanted.result(), outputs, weight);
            }
            None => held.results.remove(&wanted.result()),
        }
        outputs
    }

    /// Stores the result of a node.
    pub(super) fn keep(&self, wanted: Wanted, outputs: Arc<str>, run_id: &str, now: Timestamp) {
        let change = ResultChange::Kept {
            last: LastResult {
                tenant: wanted.tenant,
                node: wanted.node,
                key: wanted.key,
                parts: wanted.parts.clone(),
                kept: now,
            },
            run_id: run_id.to_owned(),
            outputs: Arc::clone(&outputs),
        };
        if self.changes.try_send(Change::Write(change)).is_err() {
            tracing::warn!("a result is not kept: too many wait to be written");
            return;
        }
        let weight = outputs.len() + OVERHEAD;
        let kept = Kept {
            run_id: run_id.into(),
            at: now,
            used: now,
        };
        let mut held = self.lock();
        let dropped = held.results.put(wanted.result(), kept, weight);
        held.outputs.put(wanted.result(), outputs, weight);
        let nodes = held.last.put(wanted.node(), (wanted.key, wanted.parts), 0);
        for key in dropped {
            held.outputs.remove(&key);
            self.drop_row(ResultChange::Dropped(key));
        }
        for node in nodes {
            self.drop_row(ResultChange::NodeDropped(node));
        }
    }

    /// Requests the deletion of a row. A row that stays because the queue is full counts again
    /// after a restart, and is deleted then.
    fn drop_row(&self, change: ResultChange) {
        self.changes.try_send(Change::Write(change)).ok();
    }

    fn lock(&self) -> MutexGuard<'_, HeldResults> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the reason of a miss.
fn why(held: &mut HeldResults, wanted: &Wanted) -> Miss {
    match held.last.get(&wanted.node()) {
        None => Miss::First,
        Some((key, _)) if *key == wanted.key => Miss::Evicted,
        Some((_, before)) => match wanted.parts.changed_since(before) {
            changed if changed.is_empty() => Miss::Evicted,
            changed => Miss::Changed(changed),
        },
    }
}

/// Writes changes as they arrive, until the cache is dropped.
async fn write(store: Arc<dyn ResultStore>, mut changes: mpsc::Receiver<Change>) {
    let mut received = Vec::with_capacity(MAX_BATCH);
    while changes.recv_many(&mut received, MAX_BATCH).await > 0 {
        let (mut batch, mut written) = (Vec::new(), Vec::new());
        for change in received.drain(..) {
            match change {
                Change::Write(change) => batch.push(change),
                Change::Flush(done) => written.push(done),
            }
        }
        if !batch.is_empty()
            && let Err(error) = store.write(&batch).await
        {
            tracing::warn!(
                ?error,
                results = batch.len(),
                "results are not kept over a restart"
            );
        }
        for done in written {
            // The caller may be gone.
            done.send(()).ok();
        }
    }
}

#[cfg(test)]
mod tests;
