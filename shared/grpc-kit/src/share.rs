//! The share of a server that the connections of one peer may use together.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;

use crate::Failure;

/// The time that a caller which was shed has to wait.
pub(crate) const SHED_RETRY: Duration = Duration::from_millis(500);

/// The largest message that a stream may hold for a slow reader without using the peer's share.
const SMALL_MESSAGE: usize = 64 << 10;

/// Bytes of larger messages that all streams of one peer may hold for slow readers. On their way
/// through the services each is held up to three times.
const LARGE_MESSAGES: usize = 8 << 20;

/// The share of one peer.
#[derive(Debug)]
pub(crate) struct PeerShare {
    streams: StreamRoom,
    large_messages: Arc<Semaphore>,
}

impl PeerShare {
    pub(crate) fn new(max_streams: usize) -> Self {
        Self {
            streams: StreamRoom::new("max_streams_per_peer", max_streams),
            large_messages: Arc::new(Semaphore::new(LARGE_MESSAGES)),
        }
    }

    /// Makes the bound of one stream in the room for large messages.
    pub(crate) fn large_message(&self) -> LargeMessage {
        LargeMessage {
            room: self.large_messages.clone(),
            taken: Arc::default(),
        }
    }

    /// Returns the room for the streams of the peer.
    pub(crate) fn streams(&self) -> StreamRoom {
        self.streams.clone()
    }
}

/// The room for the one large message that a stream may be about to send. The code that makes the message
/// takes the room before there is one, and the body of the answer frees it when its bytes are sent.
/// Clones belong to the same stream.
#[derive(Clone, Debug)]
pub(crate) struct LargeMessage {
    room: Arc<Semaphore>,
    /// The room for a message that has not reached the body yet.
    taken: Arc<Mutex<Option<OwnedSemaphorePermit>>>,
}

impl LargeMessage {
    /// Returns the bound of another stream of the same peer.
    pub(crate) fn of_another_stream(&self) -> Self {
        Self {
            room: self.room.clone(),
            taken: Arc::default(),
        }
    }

    /// Takes room for a message if there is room now, and returns whether there was.
    pub(crate) fn try_admit(&self, bytes: usize) -> bool {
        if bytes <= SMALL_MESSAGE {
            return true;
        }
        // A message that never reached the body is gone.
        self.keep(None);
        let permit = self.room.clone().try_acquire_many_owned(permits(bytes));
        permit.map(|permit| self.keep(Some(permit))).is_ok()
    }

    /// Waits until there is room for a message and takes it.
    pub(crate) async fn admit(&self, bytes: usize) {
        if !self.try_admit(bytes) {
            let permit = self.room.clone().acquire_many_owned(permits(bytes)).await;
            self.keep(permit.ok());
        }
    }

    fn keep(&self, permit: Option<OwnedSemaphorePermit>) -> Option<OwnedSemaphorePermit> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *taken, permit)
    }

    /// Ties the room that was taken to the bytes of the message.
    pub(super) fn tie_to(&self, data: Bytes) -> Bytes {
        if data.len() <= SMALL_MESSAGE {
            return data;
        }
        match self.keep(None) {
            Some(permit) => Bytes::from_owner(Sent {
                data,
                _permit: permit,
            }),
            None => data,
        }
    }
}

/// A message larger than all the room takes all of it.
fn permits(bytes: usize) -> u32 {
    bytes.min(LARGE_MESSAGES) as u32
}

/// Bytes with the room that they take.
struct Sent {
    data: Bytes,
    _permit: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Sent {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

/// Room for a number of streams. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct StreamRoom {
    /// The setting with the limit.
    setting: &'static str,
    maximum: usize,
    free: Arc<Semaphore>,
}

impl StreamRoom {
    fn new(setting: &'static str, maximum: usize) -> Self {
        Self {
            setting,
            maximum,
            free: Arc::new(Semaphore::new(maximum)),
        }
    }

    /// Makes the room of one connection.
    pub(crate) fn of_connection(max_streams: usize) -> Self {
        Self::new("max_streams_per_connection", max_streams)
    }

    /// Takes a place, or refuses the stream for now: the same request may succeed once others end.
    pub(super) fn enter(&self) -> Result<OwnedSemaphorePermit, Status> {
        let refused = |_| {
            Failure::overloaded(SHED_RETRY)
                .metadata("limit", self.setting)
                .metadata("maximum", self.maximum.to_string())
                .into_status()
        };
        self.free.clone().try_acquire_owned().map_err(refused)
    }
}
