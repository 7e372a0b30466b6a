//! The log that is lost with its process.
//!
//! It is bounded: when it is full, the runs that finished longest ago are dropped, and with them
//! the memory of their request ids. When only open runs are left, it answers
//! [`StorageError::Full`](crate::StorageError::Full).

use std::sync::{Arc, atomic::AtomicI64};

use async_trait::async_trait;
use core_types::{Durability, RequestId, RunId, Timestamp};

use crate::{
    CreateError, Created, DeleteError, Event, Follower, NewEvent, NewRun, Order, ReadError,
    ReopenError, Reopened, RunCursor, RunFilter, RunLog, RunPage, RunSummary, RunWriter,
    StorageError, Verification, engine::Engine, memory_store::MemoryStore, sink::Sink,
};

pub use crate::memory_store::MemoryLimits;

/// A run log in memory, for runs that declare [`Durability::Memory`].
#[derive(Debug)]
pub struct MemoryRunLog {
    engine: Engine,
    store: Arc<MemoryStore>,
}

impl MemoryRunLog {
    /// Creates an empty log.
    pub fn new(limits: MemoryLimits) -> Self {
        let store = Arc::new(MemoryStore::new(limits));
        let engine = Engine {
            durability: Durability::Memory,
            store: Arc::<MemoryStore>::clone(&store),
            sink: Sink::Memory(Arc::clone(&store)),
            registry: Arc::default(),
            next_key: AtomicI64::new(1),
        };
        Self { engine, store }
    }
}

crate::log::delegate_to_engine!(MemoryRunLog, {
    async fn forget_requests(&self, before: Timestamp) -> Result<u64, StorageError> {
        Ok(self.store.forget_requests(before))
    }

    async fn reclaim(&self) -> Result<u64, StorageError> {
        Ok(0)
    }

    async fn close(&self) {
        self.store.close();
        self.engine.registry.close();
    }
});
