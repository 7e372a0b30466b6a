//! Values that are expensive to load, cached and loaded once for all callers at the same time.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tonic::Status;
use tracing::Instrument;

/// The longest load.
const LONGEST: Duration = Duration::from_secs(30);

/// The most values that are kept.
const MAX_KEPT: usize = 256;

/// Values by key. Each key has at most one load in progress, whose callers all get its result; a
/// caller that goes away ends no load.
#[derive(Debug)]
pub(crate) struct Renewed<K, V> {
    /// The time for which a value is used before it is loaded again, from the end of its load.
    fresh_for: Duration,
    /// The greatest age of a value that is used while its next load is in progress.
    stale_for: Duration,
    /// Locked for a look-up or a change, never across an await.
    entries: Arc<Mutex<HashMap<K, Entry<V>>>>,
}

impl<K, V> Clone for Renewed<K, V> {
    fn clone(&self) -> Self {
        Self {
            entries: Arc::clone(&self.entries),
            ..*self
        }
    }
}

#[derive(Debug)]
struct Entry<V> {
    known: Option<Known<V>>,
    load: Option<Load<V>>,
}

#[derive(Debug)]
struct Known<V> {
    value: V,
    /// The times at which its load began and ended.
    begun: Instant,
    ended: Instant,
}

/// A load in progress.
#[derive(Clone, Debug)]
struct Load<V> {
    begun: Instant,
    end: watch::Receiver<Option<Result<V, Status>>>,
}

impl<V: Clone> Load<V> {
    async fn end(mut self) -> Result<V, Status> {
        match self.end.wait_for(Option::is_some).await {
            Ok(end) => end.clone().unwrap_or_else(|| Err(lost())),
            // Its task has panicked.
            Err(_) => Err(lost()),
        }
    }
}

fn lost() -> Status {
    Status::unavailable("the tools could not be loaded; try again")
}

impl<K, V> Renewed<K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// Makes an empty cache; ages count from the end of a load.
    pub(crate) fn new(fresh_for: Duration, stale_for: Duration) -> Self {
        Self {
            fresh_for,
            stale_for,
            entries: Arc::default(),
        }
    }

    /// Returns a value that is fresh, or that another caller is renewing; loads it otherwise.
    ///
    /// # Errors
    /// The failure of the load.
    pub(crate) async fn get<F>(&self, key: &K, load: impl FnOnce() -> F) -> Result<V, Status>
    where
        F: Future<Output = Result<V, Status>> + Send + 'static,
    {
        let under_way = {
            let mut entries = self.lock();
            match entries.get(key) {
                Some(entry) => match (&entry.known, &entry.load) {
                    (Some(known), _) if known.ended.elapsed() < self.fresh_for => {
                        return Ok(known.value.clone());
                    }
                    (Some(known), Some(_)) if known.ended.elapsed() < self.stale_for => {
                        return Ok(known.value.clone());
                    }
                    (_, Some(load)) => load.clone(),
                    (_, None) => self.begin(&mut entries, key, load()),
                },
                None => self.begin(&mut entries, key, load()),
            }
        };
        under_way.end().await
    }

    /// Returns a value whose load began after this call, for this caller or another.
    ///
    /// # Errors
    /// The failure of the load.
    pub(crate) async fn load<F>(&self, key: &K, load: impl FnOnce() -> F) -> Result<V, Status>
    where
        F: Future<Output = Result<V, Status>> + Send + 'static,
    {
        let asked = Instant::now();
        let mut load = Some(load);
        loop {
            let (under_way, is_new) = {
                let mut entries = self.lock();
                let entry = entries.get(key);
                let known = entry.and_then(|entry| entry.known.as_ref());
                if let Some(known) = known.filter(|known| known.begun >= asked) {
                    return Ok(known.value.clone());
                }
                match (entry.and_then(|entry| entry.load.clone()), load.take()) {
                    (Some(under_way), kept) => {
                        load = kept;
                        let is_new = under_way.begun >= asked;
                        (under_way, is_new)
                    }
                    (None, Some(load)) => (self.begin(&mut entries, key, load()), true),
                    (None, None) => return Err(lost()),
                }
            };
            let end = under_way.end().await;
            if is_new {
                return end;
            }
        }
    }

    /// Begins a load in a task of its own.
    fn begin<F>(&self, entries: &mut HashMap<K, Entry<V>>, key: &K, load: F) -> Load<V>
    where
        F: Future<Output = Result<V, Status>> + Send + 'static,
    {
        let begun = Instant::now();
        let (ends, end) = watch::channel(None);
        let under_way = Load { begun, end };
        let entry = entries.entry(key.clone()).or_insert(Entry {
            known: None,
            load: None,
        });
        entry.load = Some(under_way.clone());
        let (renewed, key) = (self.clone(), key.clone());
        let work = async move {
            // Even if the load panics, the next caller begins another one.
            let is_over = IsOver {
                renewed: &renewed,
                key: &key,
            };
            let end = tokio::time::timeout(LONGEST, load).await;
            let end = end.unwrap_or_else(|_| Err(lost()));
            if let Ok(value) = &end {
                renewed.keep(&key, value.clone(), begun);
            }
            drop(is_over);
            ends.send_replace(Some(end));
        };
        tokio::spawn(work.in_current_span());
        under_way
    }

    fn keep(&self, key: &K, value: V, begun: Instant) {
        let mut entries = self.lock();
        if let Some(entry) = entries.get_mut(key) {
            let ended = Instant::now();
            entry.known = Some(Known {
                value,
                begun,
                ended,
            });
        }
        if entries.len() > MAX_KEPT {
            let is_kept = |entry: &Entry<V>| {
                let known = entry.known.as_ref();
                let is_fresh = known.is_some_and(|known| known.ended.elapsed() < self.fresh_for);
                entry.load.is_some() || is_fresh
            };
            entries.retain(|_, entry| is_kept(entry));
            if entries.len() > MAX_KEPT {
                entries.remove(key);
            }
        }
    }
}

/// Makes room for the next load when it is dropped.
struct IsOver<'a, K: Eq + Hash, V> {
    renewed: &'a Renewed<K, V>,
    key: &'a K,
}

impl<K: Eq + Hash, V> Drop for IsOver<'_, K, V> {
    fn drop(&mut self) {
        let mut entries = self.renewed.lock();
        if let Some(entry) = entries.get_mut(self.key) {
            entry.load = None;
            let is_empty = entry.known.is_none();
            if is_empty {
                entries.remove(self.key);
            }
        }
    }
}

impl<K, V> Renewed<K, V> {
    fn lock(&self) -> MutexGuard<'_, HashMap<K, Entry<V>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
