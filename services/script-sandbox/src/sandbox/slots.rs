//! How many scripts run at once, and as whom.

use std::{
    ops::Range,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener},
    },
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{error::Refusal, settings::SandboxSettings};

/// Room for scripts. Each running script has a slot, and as root a user id of its own, so that
/// nothing that the kernel counts or allows by user is shared between two scripts.
#[derive(Debug)]
pub(super) struct Slots {
    room: Arc<Semaphore>,
    waiting: AtomicU32,
    most_waiting: u32,
    /// Users for scripts, when the service is root. Held for a push or a pop only.
    users: Option<Mutex<Users>>,
}

impl Slots {
    pub(super) fn new(settings: &SandboxSettings) -> Self {
        let first = settings.first_user;
        let users = Users {
            free: Vec::new(),
            untried: first..first.saturating_add(USERS),
        };
        Self {
            room: Arc::new(Semaphore::new(settings.concurrent_scripts as usize)),
            waiting: AtomicU32::new(0),
            most_waiting: settings.waiting_scripts,
            users: super::is_root().then(|| Mutex::new(users)),
        }
    }

    /// Takes a slot, waiting for one if not too many wait already.
    pub(super) async fn take(self: Arc<Self>) -> Result<Slot, Refusal> {
        let permit = match self.room.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                let turn = Turn::take(&self)?;
                let permit = self
                    .room
                    .clone()
                    .acquire_owned()
                    .await
                    .map_err(|_| Refusal::Lost)?;
                drop(turn);
                permit
            }
        };
        let user = match &self.users {
            Some(users) => {
                let lease = users.lock().unwrap_or_else(PoisonError::into_inner).take();
                Some(lease.ok_or(Refusal::Busy {
                    waiting: self.waiting.load(Ordering::Relaxed),
                })?)
            }
            None => None,
        };
        Ok(Slot {
            slots: self,
            user,
            _permit: permit,
        })
    }
}

/// How many user ids the service may use, so that several services on one host find some each.
pub(crate) const USERS: u32 = 1000;

/// Users that this service holds, and those that it has not tried to hold yet.
#[derive(Debug)]
struct Users {
    free: Vec<Lease>,
    untried: Range<u32>,
}

impl Users {
    fn take(&mut self) -> Option<Lease> {
        self.free
            .pop()
            .or_else(|| self.untried.by_ref().find_map(Lease::take))
    }
}

/// The sole use of a user id among the services of this host.
///
/// All processes of a user can be killed at once, which is how a script without a pid namespace is
/// ended: two services must never give the same user away. A name in the abstract socket space can
/// be bound once, and is free again when its holder dies, however it dies.
#[derive(Debug)]
struct Lease {
    user: u32,
    _name: UnixListener,
}

impl Lease {
    fn take(user: u32) -> Option<Self> {
        let address = SocketAddr::from_abstract_name(format!("tavern-script-user-{user}")).ok()?;
        Some(Self {
            user,
            _name: UnixListener::bind_addr(&address).ok()?,
        })
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
pub(super) struct Slot {
    slots: Arc<Slots>,
    user: Option<Lease>,
    _permit: OwnedSemaphorePermit,
}

impl Slot {
    /// The user id that is the script's alone.
    pub(super) fn user(&self) -> Option<u32> {
        self.user.as_ref().map(|lease| lease.user)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // The user comes back before the permit, which is dropped after this.
        if let (Some(lease), Some(users)) = (self.user.take(), &self.slots.users) {
            users
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .free
                .push(lease);
        }
    }
}
