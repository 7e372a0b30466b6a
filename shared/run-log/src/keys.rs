//! The keys of runs: small numbers to which events refer. They are assigned here, so that a run and its first events
//! can be written together.

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::{Duration, SystemTime},
};

use sql_store::{Reader, Statement};
use tokio::sync::Mutex;

use crate::StorageError;

/// The number of keys that a process takes from the server at once.
const BLOCK: i64 = 1_000;
/// The longest use of a block: its keys name the day of their runs, by which events are kept together.
const BLOCK_LIFE: Duration = Duration::from_secs(3600);

/// The source of keys.
#[derive(Debug)]
pub(crate) enum Keys {
    /// Of a database with one owner, which counts.
    Counted(AtomicI64),
    /// Of a server, which gives out blocks.
    Blocks(Blocks),
}

/// The blocks of keys that a server gives out.
#[derive(Debug)]
pub(crate) struct Blocks {
    reader: Reader,
    block: Mutex<Option<Block>>,
}

#[derive(Debug)]
struct Block {
    next: i64,
    end: i64,
    /// By the clock that also counts while the machine is suspended.
    taken: SystemTime,
}

impl Keys {
    /// Counts up from the first key that no run has.
    pub(crate) fn counted(first: i64) -> Self {
        Self::Counted(AtomicI64::new(first))
    }

    /// Takes blocks from a server.
    pub(crate) fn of_server(reader: Reader) -> Self {
        let block = Mutex::default();
        Self::Blocks(Blocks { reader, block })
    }

    /// Returns a key that no run has.
    ///
    /// # Errors
    /// [`StorageError`] when no block can be taken.
    pub(crate) async fn next(&self) -> Result<i64, StorageError> {
        match self {
            Self::Counted(next) => Ok(next.fetch_add(1, Ordering::Relaxed)),
            Self::Blocks(blocks) => blocks.next().await,
        }
    }
}

impl Block {
    fn is_of_now(&self) -> bool {
        self.taken.elapsed().is_ok_and(|age| age < BLOCK_LIFE)
    }
}

impl Blocks {
    async fn next(&self) -> Result<i64, StorageError> {
        let mut held = self.block.lock().await;
        let usable = held
            .as_ref()
            .is_some_and(|block| block.next < block.end && block.is_of_now());
        if !usable {
            let take = Statement::new("SELECT take_run_keys($1)").bind(BLOCK);
            let (first,): (i64,) = self.reader.fetch_one(take).await?;
            *held = Some(Block {
                next: first,
                end: first + BLOCK,
                taken: SystemTime::now(),
            });
        }
        let block = held.as_mut().ok_or(StorageError::Closed)?;
        block.next += 1;
        Ok(block.next - 1)
    }
}
