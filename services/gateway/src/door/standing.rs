//! Callers with open streams, whose rights are looked up again while the streams last.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use contracts::tavern::common::v1::ErrorReason;
use core_types::Reach;
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::Code;

use super::registry::{Registry, Subject};
use super::rights::{MethodAccess, Permissions};
use crate::Peers;

/// The time from the beginning of a stream until its caller is watched: most streams are over by then.
/// Together with the time for which an answer at the door is used, it is below 5 s.
const UNWATCHED: Duration = Duration::from_secs(1);

/// The pause between two look-ups.
const PAUSE: Duration = Duration::from_secs(2);

/// The pause after a look-up that was not answered.
const RETRY: Duration = Duration::from_millis(500);

/// The longest time that a look-up takes.
const LONGEST: Duration = Duration::from_secs(2);

/// The longest time for which a caller keeps its streams without an answer.
const MAX_UNKNOWN: Duration = Duration::from_secs(4);

/// The callers with open streams: one task looks up each, however many streams it has.
#[derive(Clone, Debug)]
pub(super) struct Standings {
    registry: Registry,
    /// Locked for a look-up or a change, never across an await.
    watched: Arc<Mutex<HashMap<Subject, watch::Receiver<Standing>>>>,
}

/// The rights of a caller as they are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Not looked up yet.
    Begun,
    Has(Permissions),
    Lost(End),
}

/// The reason for which a stream ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The credential proves no one any more.
    Unproven,
    /// The tenant of the caller is closed.
    Closed,
    /// The caller lacks the permission now.
    Denied,
    /// The registry has been away for too long.
    Unknown,
}

impl Standing {
    /// Returns the reason why a caller may no longer have the stream of a method, which was opened with `reach`.
    fn end(self, access: MethodAccess, reach: Reach) -> Option<End> {
        match self {
            Self::Begun => None,
            Self::Has(permissions)
                if access.is_open_to(permissions) && access.reach(permissions) >= reach =>
            {
                None
            }
            Self::Has(_) => Some(End::Denied),
            Self::Lost(end) => Some(end),
        }
    }
}

impl Standings {
    pub(super) fn new(peers: &Peers) -> Self {
        Self {
            registry: Registry::new(peers, LONGEST),
            watched: Arc::default(),
        }
    }

    /// Waits until a caller may no longer have the stream of a method, which was opened with a reach.
    pub(super) async fn ended(
        &self,
        subject: Subject,
        (access, reach): (MethodAccess, Reach),
        expires: Option<Instant>,
    ) -> End {
        let lost = async {
            tokio::time::sleep(UNWATCHED).await;
            let mut standing = self.watch(subject);
            let lost = standing.wait_for(|standing| standing.end(access, reach).is_some());
            match lost.await {
                Ok(standing) => standing.end(access, reach).unwrap_or(End::Unknown),
                // Its task has panicked.
                Err(_) => End::Unknown,
            }
        };
        let expired = async {
            match expires {
                Some(end) => tokio::time::sleep_until(end).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! { end = lost => end, () = expired => End::Unproven }
    }

    /// Returns the standing of a caller, as it changes.
    fn watch(&self, subject: Subject) -> watch::Receiver<Standing> {
        let mut watched = self.watched();
        // The value of a task that has ended stays for ever.
        let of_task = watched.get(&subject);
        if let Some(standing) = of_task.filter(|standing| standing.has_changed().is_ok()) {
            return standing.clone();
        }
        let (sender, standing) = watch::channel(Standing::Begun);
        watched.insert(subject.clone(), standing.clone());
        let standings = self.clone();
        tokio::spawn(async move { standings.renew(&subject, &sender).await });
        standing
    }

    /// Looks up a caller again and again, until it has no stream or may have none.
    async fn renew(&self, subject: &Subject, sender: &watch::Sender<Standing>) {
        let mut confirmed = Instant::now();
        loop {
            let asked = Instant::now();
            let answer = self.registry.renew(subject).await;
            if answer.is_ok() {
                confirmed = asked;
            }
            let (standing, pause) = match answer {
                Ok(caller) if caller.subject == *subject => {
                    (Some(Standing::Has(caller.permissions)), PAUSE)
                }
                // It is no more the caller that it was before the first key.
                Ok(_) => (Some(Standing::Lost(End::Unproven)), PAUSE),
                Err(status) if status.code() == Code::Unauthenticated => {
                    (Some(Standing::Lost(End::Unproven)), PAUSE)
                }
                Err(status) if grpc_kit::reason(&status) == Some(ErrorReason::TenantClosed) => {
                    (Some(Standing::Lost(End::Closed)), PAUSE)
                }
                // While the registry is away, it makes no first key.
                Err(_) if *subject == Subject::Open => (None, PAUSE),
                Err(_) if confirmed.elapsed() < MAX_UNKNOWN => (None, RETRY),
                Err(_) => (Some(Standing::Lost(End::Unknown)), PAUSE),
            };
            if let Some(standing) = standing {
                sender.send_if_modified(|known| std::mem::replace(known, standing) != standing);
            }
            if let Some(Standing::Lost(_)) = standing {
                self.watched().remove(subject);
                return;
            }
            tokio::time::sleep(pause).await;
            if self.forget_unused(subject, sender) {
                return;
            }
        }
    }

    /// Forgets a caller without a stream.
    fn forget_unused(&self, subject: &Subject, sender: &watch::Sender<Standing>) -> bool {
        let mut watched = self.watched();
        // The other receiver is the one in the map.
        let is_unused = sender.receiver_count() <= 1;
        if is_unused {
            watched.remove(subject);
        }
        is_unused
    }

    fn watched(&self) -> MutexGuard<'_, HashMap<Subject, watch::Receiver<Standing>>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
