//! Users for scripts, when the service is root.
//!
//! Each script gets a user id of its own, so that two scripts share no limit or right that the
//! kernel keeps by user.

use std::{
    collections::VecDeque,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener},
    },
    sync::{Arc, Mutex, PoisonError},
};

/// The number of user ids that the service may use, so that several services on one host each find
/// some.
const USERS: u32 = 1000;

/// Assigns users, each to one script at a time.
#[derive(Clone, Debug)]
pub struct Users {
    /// `None` where the service is not root and has no users to assign. Locked for a push or a pop
    /// only.
    known: Option<Arc<Mutex<Known>>>,
}

/// A lack of free users: other services on this host hold them, or too many scripts run.
#[derive(Clone, Copy, Debug)]
pub struct NoUser;

/// Users that this service holds, and users that it does not hold yet.
#[derive(Debug)]
struct Known {
    free: Vec<u32>,
    /// Users that were held elsewhere at the last attempt are at the end.
    not_held: VecDeque<u32>,
    /// The sole use of user ids among the services of this host.
    ///
    /// All processes of a user can be killed at once, which is how a script without a pid namespace
    /// is ended: two services must never assign the same user. A name in the abstract socket
    /// namespace can be bound once, and is free again when its holder dies in any way.
    names: Vec<UnixListener>,
}

impl Users {
    /// Assigns the users from `first` on, if this process is root.
    pub fn new(first: u32) -> Self {
        let known = || {
            Arc::new(Mutex::new(Known {
                free: Vec::new(),
                not_held: (first..first.saturating_add(USERS)).collect(),
                names: Vec::new(),
            }))
        };
        Self {
            known: rustix::process::geteuid().is_root().then(known),
        }
    }

    /// Takes a user; `None` if scripts run as the service's own user.
    ///
    /// # Errors
    /// Fails when no user is free.
    pub fn take(&self) -> Result<Option<User>, NoUser> {
        let Some(known) = self.known.clone() else {
            return Ok(None);
        };
        let id = known.lock().unwrap_or_else(PoisonError::into_inner).take();
        let id = id.ok_or(NoUser)?;
        Ok(Some(User { id, known }))
    }
}

impl Known {
    fn take(&mut self) -> Option<u32> {
        if let Some(free) = self.free.pop() {
            return Some(free);
        }
        for _ in 0..self.not_held.len() {
            let user = self.not_held.pop_front()?;
            if let Some(name) = hold(user) {
                self.names.push(name);
                return Some(user);
            }
            // Its holder may release it.
            self.not_held.push_back(user);
        }
        None
    }
}

fn hold(user: u32) -> Option<UnixListener> {
    let name = format!("tavern-script-user-{user}");
    let address = SocketAddr::from_abstract_name(name).ok()?;
    UnixListener::bind_addr(&address).ok()
}

/// A user that one script has for itself, returned when it is dropped.
#[derive(Debug)]
pub struct User {
    id: u32,
    known: Arc<Mutex<Known>>,
}

impl User {
    /// The user id.
    pub fn id(&self) -> u32 {
        self.id
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.free.push(self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_that_others_held_are_taken_once_they_are_free() {
        const FIRST: u32 = 3_000_000_000;
        let mut known = Known {
            free: Vec::new(),
            not_held: (FIRST..FIRST + 3).collect(),
            names: Vec::new(),
        };
        let others: Vec<UnixListener> = (FIRST..FIRST + 3).filter_map(hold).collect();
        assert_eq!(others.len(), 3);
        for _ in 0..10 {
            assert_eq!(known.take(), None);
        }
        drop(others);
        let taken: Vec<u32> = std::iter::from_fn(|| known.take()).collect();
        assert_eq!(taken, [FIRST, FIRST + 1, FIRST + 2]);
    }
}
