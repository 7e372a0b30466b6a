//! Keeps the target number of interpreters waiting.

use std::{
    collections::VecDeque,
    num::NonZero,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use tokio::{sync::oneshot, task::JoinSet};

use super::{PoolEntry, PoolKey, SharedPool, StartFailures, WarmInterpreter};

/// The interval at which waiting interpreters are checked for being alive and needed.
const TICK: Duration = Duration::from_secs(1);

/// The time for which a script that has taken an interpreter has the machine to itself, before the
/// start of the next one begins to compete with it.
const HEAD_START: Duration = Duration::from_millis(5);

/// The most interpreters of all kinds that wait, where so many of one kind may.
pub(crate) const fn most_waiting(of_a_kind: u32) -> u32 {
    /// Each of the runtimes that come with the service, and a package set.
    const KINDS: u32 = 4;
    of_a_kind.saturating_mul(KINDS)
}

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
                Ok((order, warmed)) => shelve(&inner, &order, warmed, &mut retiring),
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
    let room = Room::of(&entries, inner);
    let ending = inner.retiring.load(Ordering::Relaxed);
    if room.number == 0 {
        return None;
    }
    let neediest = entries
        .iter_mut()
        .filter(|entry| {
            entry.waiting() + entry.starting < entry.sizer.target()
                && entry.memory <= room.memory.saturating_sub(ending)
                && !entry.trouble.pauses(now)
        })
        .min_by_key(|entry| entry.waiting() + entry.starting)?;
    neediest.starting += 1;
    Some(neediest.order.clone())
}

/// Puts an interpreter beside those that wait. One that keeps more memory than was expected has others make room.
fn shelve(
    inner: &Arc<SharedPool>,
    order: &PoolKey,
    warmed: Result<WarmInterpreter, String>,
    retiring: &mut JoinSet<()>,
) {
    let mut entries = inner.entries();
    let is_it = |entry: &&mut PoolEntry| entry.order.kind() == order.kind();
    let Some(entry) = entries.iter_mut().find(is_it) else {
        // An entry is not removed while an interpreter of it is being started.
        return;
    };
    entry.starting = entry.starting.saturating_sub(1);
    match warmed {
        Ok(warm) => {
            entry.memory = warm.memory();
            entry.trouble = StartFailures::default();
            let mut unwanted = VecDeque::new();
            match entry.memory > inner.memory {
                true => unwanted.push_back(warm),
                false => entry.ready.push_back(warm),
            }
            let enough = Room::default();
            unwanted.extend(make_room(&mut entries, inner, enough, Instant::now()));
            drop(entries);
            retire_all(inner, unwanted, retiring);
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
fn tidy(inner: &Arc<SharedPool>, retiring: &mut JoinSet<()>, now: Instant) {
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
    // A package set that was built again leaves entries that nothing needs.
    let needed = |entry: &PoolEntry| {
        entry.order.packages.is_none() || entry.sizer.target() > 0 || entry.starting > 0
    };
    entries.retain(|entry| needed(entry) || !entry.ready.is_empty());
    // A kind without a waiting interpreter comes before a kind with several, and before one that was asked for earlier.
    let room = Room::of(&entries, inner);
    let starves = |entry: &&PoolEntry| {
        entry.waiting() + entry.starting == 0
            && entry.sizer.target() > 0
            && entry.memory <= inner.memory
            && (entry.memory > room.memory || room.number == 0)
            && !entry.trouble.pauses(now)
    };
    let starving = entries.iter().filter(starves);
    let latest = starving.max_by_key(|entry| entry.sizer.last_asked());
    if let Some((asked, memory)) = latest.map(|entry| (entry.sizer.last_asked(), entry.memory)) {
        let wanted = Room { memory, number: 1 };
        unwanted.extend(make_room(&mut entries, inner, wanted, asked));
    }
    drop(entries);
    retire_all(inner, unwanted, retiring);
}

/// The room for interpreters that wait.
#[derive(Clone, Copy, Debug, Default)]
struct Room {
    /// Bytes of memory.
    memory: u64,
    /// Interpreters.
    number: u32,
}

impl Room {
    /// The room that is left.
    fn of(entries: &[PoolEntry], inner: &SharedPool) -> Self {
        let kept: u64 = entries.iter().map(PoolEntry::memory_in_use).sum();
        let number: u32 = entries
            .iter()
            .map(|entry| entry.waiting() + entry.starting)
            .sum();
        Self {
            memory: inner.memory.saturating_sub(kept),
            number: most_waiting(inner.most).saturating_sub(number),
        }
    }
}

/// Takes interpreters away until there is as much room as is wanted: of kinds of which several wait the largest, then of
/// the kind that was asked for the longest time ago, if that was before `asked`.
fn make_room(
    entries: &mut [PoolEntry],
    inner: &SharedPool,
    wanted: Room,
    asked: Instant,
) -> VecDeque<WarmInterpreter> {
    let mut taken = VecDeque::new();
    loop {
        let kept: u64 = entries.iter().map(PoolEntry::memory_in_use).sum();
        let room = Room::of(entries, inner);
        if kept.saturating_add(wanted.memory) <= inner.memory && room.number >= wanted.number {
            return taken;
        }
        let several = entries.iter_mut().filter(|entry| entry.waiting() > 1);
        let victim = match several.max_by_key(|entry| entry.memory_in_use()) {
            Some(largest) => Some(largest),
            None => {
                let idle = |entry: &&mut PoolEntry| {
                    entry.waiting() > 0 && entry.sizer.last_asked() < asked
                };
                let idle = entries.iter_mut().filter(idle);
                idle.min_by_key(|entry| entry.sizer.last_asked())
            }
        };
        match victim.and_then(|entry| entry.ready.pop_front()) {
            Some(warm) => taken.push_back(warm),
            None => return taken,
        }
    }
}

/// Ends interpreters. Until they have ended their memory is not free.
fn retire_all(
    inner: &Arc<SharedPool>,
    unwanted: VecDeque<WarmInterpreter>,
    retiring: &mut JoinSet<()>,
) {
    for warm in unwanted {
        let (inner, memory) = (Arc::clone(inner), warm.memory());
        inner.retiring.fetch_add(memory, Ordering::Relaxed);
        retiring.spawn(async move {
            warm.retire().await;
            inner.retiring.fetch_sub(memory, Ordering::Relaxed);
        });
    }
}

impl PoolEntry {
    /// The memory of its waiting and starting interpreters, in bytes.
    pub(super) fn memory_in_use(&self) -> u64 {
        let waiting: u64 = self.ready.iter().map(WarmInterpreter::memory).sum();
        waiting + u64::from(self.starting) * self.memory
    }
}
