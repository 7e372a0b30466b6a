//! How many scripts run at once.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{error::Refusal, settings::SandboxSettings};

/// Room for scripts: each running script has a slot.
#[derive(Debug)]
pub(super) struct Slots {
    room: Arc<Semaphore>,
    waiting: AtomicU32,
    most_waiting: u32,
}

impl Slots {
    pub(super) fn new(settings: &SandboxSettings) -> Self {
        Self {
            room: Arc::new(Semaphore::new(settings.concurrent_scripts as usize)),
            waiting: AtomicU32::new(0),
            most_waiting: settings.waiting_scripts,
        }
    }

    /// Takes a slot, waiting for one if not too many wait already.
    pub(super) async fn take(&self) -> Result<Slot, Refusal> {
        let permit = match self.room.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                let _turn = Turn::take(self)?;
                let room = self.room.clone();
                room.acquire_owned().await.map_err(|_| Refusal::Lost)?
            }
        };
        Ok(Slot(permit))
    }

    /// The refusal of a request for which there is no room.
    pub(super) fn busy(&self) -> Refusal {
        Refusal::Busy {
            waiting: self.waiting.load(Ordering::Relaxed),
        }
    }
}

/// A place in the queue.
struct Turn<'a>(&'a Slots);

impl<'a> Turn<'a> {
    fn take(slots: &'a Slots) -> Result<Self, Refusal> {
        let before = slots.waiting.fetch_add(1, Ordering::Relaxed);
        let turn = Self(slots);
        if before >= slots.most_waiting {
            return Err(Refusal::Busy { waiting: before });
        }
        Ok(turn)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The right to run one script, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Slot(
    #[expect(dead_code, reason = "it is held for its end only")] OwnedSemaphorePermit,
);
