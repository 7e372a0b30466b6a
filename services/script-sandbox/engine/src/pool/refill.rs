//! Keeps the target number of interpreters waiting.

use std::{
    collections::VecDeque,
    num::NonZero,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{sync::oneshot, task::JoinSet};

use super::{PoolEntry, PoolKey, SharedPool, StartFailures, WarmInterpreter};

/// The interval at which waiting interpreters are checked for being alive and needed.
const TICK: Duration = Duration::from_secs(1);

/// The time for which a script that has taken an interpreter has the machine to itself, before the
/// start of the next one begins to compete with it.
const HEAD_START: Duration = Duration::from_millis(5);

/// The assumed memory of an interpreter before one was measured, in bytes.
pub(super) const GUESSED_MEMORY: u64 = 32 << 20;

/// Refills until `closed` fires or its sender is dropped, and then ends the waiting interpreters.
pub(super) async fn run(inner: Arc<SharedPool>, mut closed: oneshot::Receiver<()>) {
    let mut starting: JoinSet<(PoolKey, Result<WarmInterpreter, String>)> = JoinSet::new();
    let mut retiring: JoinSet<()> = JoinSet::new();
    let mut ticks = tokio::time::interval(TICK);
    // Starting interpreters may occupy half of the machine.
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let at_once = (cores / 2).clamp(1, 8);
    loop {
        while starting.len() < at_once
            && let Some(order) = next(&inner, Instant::now())
        {
            let inner = inner.clone();
            starting.spawn(async move {
                let warmed = WarmInterpreter::up(&inner.tools, &order).await;
                (order, warmed)
            });
        }
        tokio::select! {
            _ = &mut closed => break,
            () = inner.asked.notified() => {
                if starting.is_empty() {
                    tokio::time::sleep(HEAD_START).await;
                }
            }
            _ = ticks.tick() => tidy(&inner, &mut retiring, Instant::now()),
            Some(_) = retiring.join_next() => {}
            Some(ended) = starting.join_next() => match ended {
                Ok((order, warmed)) => shelve(&inner, &order, warmed),
                Err(error) => tracing::error!(%error, "starting an interpreter panicked"),
            },
        }
    }
    for entry in std::mem::take(&mut *inner.entries()) {
        for warm in entry.ready {
            retiring.spawn(warm.retire());
        }
    }
    while let Some(ended) = starting.join_next().await {
        if let Ok((_, Ok(warm))) = ended {
            retiring.spawn(warm.retire());
        }
    }
    retiring.join_all().await;
}

/// The interpreter to start next: of the entry that lacks most.
fn next(inner: &SharedPool, now: Instant) -> Option<PoolKey> {
    let mut entries = inner.entries();
    let kept: u64 = entries.iter().map(PoolEntry::memory_in_use).sum();
    let room = inner.memory.saturating_sub(kept);
    let neediest = entries
        .iter_mut()
        .filter(|entry| {
            entry.waiting() + entry.starting < entry.sizer.target()
                && entry.memory <= room
                && !entry.trouble.pauses(now)
        })
        .min_by_key(|entry| entry.waiting() + entry.starting)?;
    neediest.starting += 1;
    Some(neediest.order.clone())
}

fn shelve(inner: &SharedPool, order: &PoolKey, warmed: Result<WarmInterpreter, String>) {
    let mut entries = inner.entries();
    let is_it =
        |entry: &&mut PoolEntry| entry.is(&order.profile.name, &order.script_path, order.tenant);
    let Some(entry) = entries.iter_mut().find(is_it) else {
        // An entry is not removed while an interpreter of it is being started.
        return;
    };
    entry.starting = entry.starting.saturating_sub(1);
    match warmed {
        Ok(warm) => {
            entry.memory = warm.memory();
            entry.trouble = StartFailures::default();
            entry.ready.push_back(warm);
        }
        Err(problem) => {
            let pause = entry.trouble.note(problem, Instant::now());
            tracing::warn!(
                runtime = order.profile.name,
                problem = entry.trouble.problem,
                pause_seconds = pause.as_secs(),
                "failed to warm up an interpreter; scripts start cold until one is ready"
            );
        }
    }
}

/// Ends waiting interpreters that are dead or no longer needed.
fn tidy(inner: &SharedPool, retiring: &mut JoinSet<()>, now: Instant) {
    let mut unwanted = VecDeque::new();
    let mut entries = inner.entries();
    for entry in entries.iter_mut() {
        for mut warm in std::mem::take(&mut entry.ready) {
            match warm.is_alive() {
                true => entry.ready.push_back(warm),
                false => unwanted.push_back(warm),
            }
        }
        entry.sizer.tick(entry.waiting(), now);
        while entry.waiting() > entry.sizer.target() {
            unwanted.extend(entry.ready.pop_front());
        }
    }
    // A kind without a waiting interpreter comes before a kind with several.
    let kept: u64 = entries.iter().map(PoolEntry::memory_in_use).sum();
    let room = inner.memory.saturating_sub(kept);
    let starves = |entry: &PoolEntry| {
        entry.waiting() + entry.starting == 0
            && entry.sizer.target() > 0
            && entry.memory > room
            && !entry.trouble.pauses(now)
    };
    if entries.iter().any(starves) {
        let several = entries.iter_mut().filter(|entry| entry.waiting() > 1);
        if let Some(largest) = several.max_by_key(|entry| entry.memory_in_use()) {
            unwanted.extend(largest.ready.pop_front());
        }
    }
    drop(entries);
    for warm in unwanted {
        retiring.spawn(warm.retire());
    }
}

impl PoolEntry {
    /// The memory of its waiting and starting interpreters, in bytes.
    fn memory_in_use(&self) -> u64 {
        let waiting: u64 = self.ready.iter().map(WarmInterpreter::memory).sum();
        waiting + u64::from(self.starting) * self.memory
    }
}
