//! The keys of an issuer, and the times at which they are read.
//!
//! They are read hourly, a minute after a failure, and for an id that they do not have; at most once in 30 s, and one
//! time at once. A set that was read stays in force until a better one is there, or for 24 h.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use core_types::{Clock, Timestamp};
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use tool_domain::identity::{KeySet, TokenFault};

use super::metrics;
use super::source::KeySource;

/// The shortest time between the beginnings of two reads.
const PAUSE: Duration = Duration::from_secs(30);

/// The time after which keys are read again.
const FRESH: Duration = Duration::from_secs(60 * 60);

/// The time after which they are read again when they could not be read.
const RETRY: Duration = Duration::from_secs(60);

/// The time for which keys are used that cannot be read again.
const KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// The time between two looks at the clock.
const LOOK: Duration = Duration::from_secs(1);

/// The keys of an issuer.
pub(super) struct IssuerKeys {
    issuer: String,
    source: Box<dyn KeySource>,
    /// Replaced as a whole. Locked for the time of a pointer copy only.
    current: RwLock<Option<Arc<ReadKeys>>>,
    /// Locked for a look or a change, never across an await.
    reads: Mutex<Reads>,
    clock: Arc<dyn Clock>,
}

#[derive(Debug)]
struct ReadKeys {
    keys: Arc<KeySet>,
    /// The time at which their read began.
    read: Timestamp,
}

#[derive(Default)]
struct Reads {
    /// The time at which the last one began.
    begun: Option<Timestamp>,
    /// Completes at the end of the last one.
    last: Option<Shared<BoxFuture<'static, ()>>>,
}

impl fmt::Debug for IssuerKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IssuerKeys")
            .field("issuer", &self.issuer)
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

impl IssuerKeys {
    pub(super) fn new(issuer: String, source: Box<dyn KeySource>, clock: Arc<dyn Clock>) -> Self {
        Self {
            issuer,
            source,
            current: RwLock::default(),
            reads: Mutex::default(),
            clock,
        }
    }

    /// Returns the keys with one of an id, which are read if they have none.
    pub(super) async fn with(self: &Arc<Self>, id: &str) -> Result<Arc<KeySet>, TokenFault> {
        if let Some(keys) = self.usable().filter(|keys| keys.has(id)) {
            return Ok(keys);
        }
        if let Some(read) = self.read() {
            read.await;
        }
        let keys = self.usable().ok_or(TokenFault::NoKeys)?;
        keys.has(id).then_some(keys).ok_or(TokenFault::Key)
    }

    /// Begins to read the keys now and whenever it is time, for as long as another part holds them.
    pub(super) fn begin_reading(self: &Arc<Self>) {
        let keys = Arc::downgrade(self);
        tokio::spawn(async move {
            while let Some(keys) = keys.upgrade() {
                if keys.is_time()
                    && let Some(read) = keys.read()
                {
                    read.await;
                }
                drop(keys);
                tokio::time::sleep(LOOK).await;
            }
        });
    }

    /// Returns the time since the keys were read; `None` if they never were.
    pub(super) fn age(&self) -> Option<Duration> {
        let read = self.current()?.read;
        Some(self.clock.now().since(read))
    }

    fn current(&self) -> Option<Arc<ReadKeys>> {
        let current = self.current.read();
        current.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn usable(&self) -> Option<Arc<KeySet>> {
        let current = self.current()?;
        let is_usable = self.clock.now() < current.read.plus(KEPT);
        is_usable.then(|| Arc::clone(&current.keys))
    }

    /// Whether the keys are to be read without a token that needs one.
    fn is_time(&self) -> bool {
        let now = self.clock.now();
        let is_fresh = self.age().is_some_and(|age| age < FRESH);
        let begun = self
            .reads
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .begun;
        !is_fresh && begun.is_none_or(|begun| now >= begun.plus(RETRY))
    }

    /// Returns the end of a read: of the present one, or of one that begins now; `None` if the last one began a short
    /// time ago. A read continues if nothing waits for it.
    fn read(self: &Arc<Self>) -> Option<Shared<BoxFuture<'static, ()>>> {
        let now = self.clock.now();
        let mut reads = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
        let is_open = |read: &&Shared<BoxFuture<'static, ()>>| read.peek().is_none();
        if let Some(open) = reads.last.as_ref().filter(is_open) {
            return Some(open.clone());
        }
        if reads.begun.is_some_and(|begun| now < begun.plus(PAUSE)) {
            return None;
        }
        let keys = Arc::clone(self);
        let task = tokio::spawn(async move { keys.take(now).await });
        let read = task.map(drop).boxed().shared();
        reads.begun = Some(now);
        reads.last = Some(read.clone());
        Some(read)
    }

    /// Reads the keys, and puts them in force if they are good ones.
    async fn take(&self, now: Timestamp) {
        let issuer = &*self.issuer;
        let read = match self.source.read().await {
            Ok(bytes) => KeySet::read(&bytes).map_err(|fault| fault.to_string()),
            Err(error) => Err(error.to_string()),
        };
        metrics::read(issuer, read.is_ok());
        match read {
            Ok(keys) => {
                let (usable, left_out) = (keys.usable(), keys.left_out());
                tracing::debug!(issuer, usable, left_out, "the keys of an issuer are read");
                let keys = Arc::new(keys);
                let current = self.current.write();
                *current.unwrap_or_else(PoisonError::into_inner) =
                    Some(Arc::new(ReadKeys { keys, read: now }));
            }
            Err(reason) => self.report(&reason),
        }
    }

    fn report(&self, reason: &str) {
        let issuer = &*self.issuer;
        let age = self.age().map(|age| age.as_secs());
        match self.usable() {
            Some(_) => tracing::warn!(
                issuer,
                reason,
                age,
                "the keys of an issuer were not read; the earlier ones are used for 24 h"
            ),
            None => tracing::error!(
                issuer,
                reason,
                age,
                "the keys of an issuer were not read; its tokens are refused"
            ),
        }
    }
}
