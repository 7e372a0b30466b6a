//! Room that callers share: nobody gets more than a share of it, and whoever waits has a turn.
//!
//! A caller holds at most so many places at once and waits for at most so many more. When a place
//! becomes free it goes to the caller whose turn it is, and that caller's turn comes again behind
//! everybody else's; the requests of one caller are served in the order in which they came. A caller
//! who has nothing here takes no memory. The caller without a name is one caller.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::oneshot;

/// How much room there is. All of it counts places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// How many are held at once.
    pub places: u32,
    /// How many of them one caller holds.
    pub per_caller: u32,
    /// How many are waited for.
    pub waiting: u32,
    /// How many of them one caller waits for.
    pub waiting_per_caller: u32,
}

impl Room {
    /// What one caller has of `all`: what the operator says, else three quarters, and at least one.
    pub fn share(said: Option<u32>, all: u32) -> u32 {
        said.unwrap_or(all - all.div_ceil(4)).max(1)
    }
}

/// Why no place could be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// The caller holds and waits for as much as one may.
    Caller {
        /// How many of the caller's requests wait already.
        waiting: u32,
    },
    /// Too many of all callers wait.
    Everybody {
        /// How many wait already.
        waiting: u32,
    },
}

/// Room and who has it.
#[derive(Debug)]
pub struct Shares {
    room: Room,
    /// Held for an entry only, never while anything is awaited.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    held: u32,
    waiting: u32,
    /// Callers who hold or wait.
    callers: HashMap<String, Holder>,
    /// Callers who wait, each once, in turn.
    turns: VecDeque<String>,
    /// The number of the next place that is asked for.
    next: u64,
}

#[derive(Debug, Default)]
struct Holder {
    held: u32,
    queue: VecDeque<Turn>,
}

#[derive(Debug)]
struct Turn {
    number: u64,
    granted: oneshot::Sender<()>,
}

/// One place, given back when it is dropped. While it is waited for it is a place in the queue.
#[derive(Debug)]
pub struct Share {
    shares: Arc<Shares>,
    caller: String,
    number: u64,
    /// False while it waits, as far as it knows.
    granted: bool,
}

impl Shares {
    /// All of the room is free.
    pub fn new(room: Room) -> Arc<Self> {
        Arc::new(Self {
            room,
            state: Mutex::default(),
        })
    }

    /// Takes a place for a caller, and waits for it if it has to and may. Dropping the future leaves
    /// the queue.
    ///
    /// # Errors
    /// When the caller, or everybody, waits for as much as may be waited for.
    pub async fn take(self: &Arc<Self>, caller: &str) -> Result<Share, Full> {
        let (mut share, turn) = self.enter(caller)?;
        if let Some(turn) = turn {
            // The sender is kept until the turn has come, so there is always something to receive.
            share.granted = turn.await.is_ok();
        }
        Ok(share)
    }

    /// How many places are held by all callers together.
    pub fn held(&self) -> u32 {
        self.lock().held
    }

    /// How many places are waited for by all callers together.
    pub fn waiting(&self) -> u32 {
        self.lock().waiting
    }

    /// How the room is divided.
    pub fn room(&self) -> Room {
        self.room
    }

    fn enter(
        self: &Arc<Self>,
        caller: &str,
    ) -> Result<(Share, Option<oneshot::Receiver<()>>), Full> {
        let mut state = self.lock();
        let own = state.callers.get(caller);
        let held = own.map_or(0, |holder| holder.held);
        let queued = own.map_or(0, |holder| holder.queue.len());
        let queued = u32::try_from(queued).unwrap_or(u32::MAX);
        let number = state.next;
        let share = |granted| Share {
            shares: self.clone(),
            caller: caller.to_owned(),
            number,
            granted,
        };
        // Whatever is free nobody waits for who may have it.
        if state.held < self.room.places && held < self.room.per_caller {
            state.next += 1;
            state.held += 1;
            state.callers.entry(caller.to_owned()).or_default().held += 1;
            return Ok((share(true), None));
        }
        let waits_enough = queued >= self.room.waiting_per_caller;
        if waits_enough && (queued > 0 || held >= self.room.per_caller) {
            return Err(Full::Caller { waiting: queued });
        }
        if waits_enough || state.waiting >= self.room.waiting {
            let waiting = state.waiting;
            return Err(Full::Everybody { waiting });
        }
        let (granted, turn) = oneshot::channel();
        state.next += 1;
        state.waiting += 1;
        let holder = state.callers.entry(caller.to_owned()).or_default();
        holder.queue.push_back(Turn { number, granted });
        if queued == 0 {
            state.turns.push_back(caller.to_owned());
        }
        Ok((share(false), Some(turn)))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change is complete before anything can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes a request out of its queue; false if its turn has come already.
    fn leave_queue(&mut self, caller: &str, number: u64) -> bool {
        let Some(holder) = self.callers.get_mut(caller) else {
            return false;
        };
        let place = holder.queue.iter().position(|turn| turn.number == number);
        let Some(place) = place else {
            return false;
        };
        holder.queue.remove(place);
        if holder.queue.is_empty() {
            self.turns.retain(|other| other != caller);
        }
        self.waiting -= 1;
        self.forget_if_idle(caller);
        true
    }

    fn give_back(&mut self, caller: &str) {
        if let Some(holder) = self.callers.get_mut(caller) {
            holder.held -= 1;
            self.held -= 1;
        }
        self.forget_if_idle(caller);
    }

    fn forget_if_idle(&mut self, caller: &str) {
        let idle = |holder: &Holder| holder.held == 0 && holder.queue.is_empty();
        if self.callers.get(caller).is_some_and(idle) {
            self.callers.remove(caller);
        }
    }

    /// Gives what is free to those whose turn it is.
    fn hand_out(&mut self, room: Room) {
        while self.held < room.places {
            let may_have_more = |caller: &String| {
                let holder = self.callers.get(caller);
                holder.is_some_and(|holder| holder.held < room.per_caller)
            };
            let Some(place) = self.turns.iter().position(may_have_more) else {
                return;
            };
            let Some(caller) = self.turns.remove(place) else {
                return;
            };
            let Some(holder) = self.callers.get_mut(&caller) else {
                continue;
            };
            let Some(turn) = holder.queue.pop_front() else {
                continue;
            };
            holder.held += 1;
            self.held += 1;
            self.waiting -= 1;
            if !holder.queue.is_empty() {
                self.turns.push_back(caller);
            }
            // One who has stopped waiting gives the place back, and has to lock for it first.
            let _ = turn.granted.send(());
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut state = self.shares.lock();
        // A turn that has come unnoticed is a place that is held.
        if self.granted || !state.leave_queue(&self.caller, self.number) {
            state.give_back(&self.caller);
            state.hand_out(self.shares.room);
        }
    }
}

#[cfg(test)]
mod tests;
