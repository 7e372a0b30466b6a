//! Keeps as many interpreters waiting as should wait.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{sync::oneshot, task::JoinSet};

use super::{Inner, Order, Shelf, Trouble, Warm};

/// How often it is looked whether those who wait are alive and still wanted.
const TICK: Duration = Duration::from_secs(1);

/// How long a script that has taken an interpreter has the machine to itself, before the start of the
/// next one begins to compete with it.
const HEAD_START: Duration = Duration::from_millis(5);

/// What an interpreter is taken to keep in memory before one was weighed, in bytes.
pub(super) const GUESSED_MEMORY: u64 = 32 << 20;

type Warmed = (Order, Result<Warm, String>);

/// Refills until `closed` fires or its sender is dropped, and then ends everybody who waits.
pub(super) async fn run(inner: Arc<Inner>, mut closed: oneshot::Receiver<()>) {
    let mut starting: JoinSet<Warmed> = JoinSet::new();
    let mut retiring: JoinSet<()> = JoinSet::new();
    let mut ticks = tokio::time::interval(TICK);
    let at_once = at_once();
    loop {
        while starting.len() < at_once
            && let Some(order) = next(&inner, Instant::now())
        {
            let inner = inner.clone();
            starting.spawn(async move {
                let warmed = Warm::up(&inner.tools, &order).await;
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
                Ok((order, warmed)) => shelve(&inner, &order, warmed, Instant::now()),
                Err(error) => tracing::error!(%error, "starting an interpreter panicked"),
            },
        }
    }
    for shelf in std::mem::take(&mut *inner.shelves()) {
        for warm in shelf.ready {
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

/// How many are started at the same time: half of the machine may be busy with it.
fn at_once() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| (cores.get() / 2).clamp(1, 8))
}

/// The next one to start: of the shelf that has the least of what it should have.
fn next(inner: &Inner, now: Instant) -> Option<Order> {
    let mut shelves = inner.shelves();
    let kept: u64 = shelves.iter().map(Shelf::memory_in_use).sum();
    let room = inner.bounds.memory.saturating_sub(kept);
    let neediest = shelves
        .iter_mut()
        .filter(|shelf| {
            shelf.waiting() + shelf.starting < shelf.demand.target()
                && shelf.memory <= room
                && !shelf.trouble.pauses(now)
        })
        .min_by_key(|shelf| shelf.waiting() + shelf.starting)?;
    neediest.starting += 1;
    Some(neediest.order.clone())
}

fn shelve(inner: &Inner, order: &Order, warmed: Result<Warm, String>, now: Instant) {
    let mut shelves = inner.shelves();
    let own = shelves.iter_mut().find(|shelf| {
        shelf.order.profile.name == order.profile.name
            && shelf.order.script_path == order.script_path
    });
    let Some(shelf) = own else {
        // A shelf is not given up while one of it is being started.
        return;
    };
    shelf.starting = shelf.starting.saturating_sub(1);
    match warmed {
        Ok(warm) => {
            shelf.memory = warm.memory();
            shelf.trouble = Trouble::default();
            shelf.ready.push_back(warm);
        }
        Err(problem) => {
            let pause = shelf.trouble.note(problem, now);
            tracing::warn!(
                runtime = order.profile.name,
                problem = shelf.trouble.problem,
                pause_seconds = pause.as_secs(),
                "no interpreter could be made to wait; scripts are started cold meanwhile"
            );
        }
    }
}

/// Ends those that are dead or no longer wanted.
fn tidy(inner: &Inner, retiring: &mut JoinSet<()>, now: Instant) {
    let mut unwanted = VecDeque::new();
    let mut shelves = inner.shelves();
    for shelf in shelves.iter_mut() {
        for _ in 0..shelf.ready.len() {
            if let Some(mut warm) = shelf.ready.pop_front() {
                let kept_by = if warm.is_alive() {
                    &mut shelf.ready
                } else {
                    &mut unwanted
                };
                kept_by.push_back(warm);
            }
        }
        shelf.demand.tick(shelf.waiting(), now);
        while shelf.waiting() > shelf.demand.target() {
            unwanted.extend(shelf.ready.pop_front());
        }
    }
    // A kind of which nobody waits comes before one of which several do.
    let kept: u64 = shelves.iter().map(Shelf::memory_in_use).sum();
    let room = inner.bounds.memory.saturating_sub(kept);
    let starves = |shelf: &Shelf| {
        shelf.waiting() + shelf.starting == 0
            && shelf.demand.target() > 0
            && shelf.memory > room
            && !shelf.trouble.pauses(now)
    };
    if shelves.iter().any(starves) {
        let several = shelves.iter_mut().filter(|shelf| shelf.waiting() > 1);
        if let Some(largest) = several.max_by_key(|shelf| shelf.memory_in_use()) {
            unwanted.extend(largest.ready.pop_front());
        }
    }
    drop(shelves);
    for warm in unwanted {
        retiring.spawn(warm.retire());
    }
}

impl Shelf {
    /// What those of it that wait or will soon keep in memory.
    fn memory_in_use(&self) -> u64 {
        let waiting: u64 = self.ready.iter().map(Warm::memory).sum();
        waiting + u64::from(self.starting) * self.memory
    }
}
