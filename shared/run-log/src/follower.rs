//! Following the events of a run.

use std::sync::Arc;

use core_types::RunId;
use tokio::sync::watch;

use crate::{
    Event, ReadError, StorageError,
    cell::{Progress, RunCell},
    limits::MAX_FOLLOW_BYTES,
    step::{RunRow, Store},
};

/// The first page from the store is small, so that the first event is there soon.
const FIRST_PAGE: usize = 64;
const PAGE: usize = 256;

/// Events in the order of their sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Batch {
    /// The next events, at least one, without gaps.
    Events(Vec<Event>),
    /// Requested events are no longer stored.
    Gap {
        /// The first sequence that is.
        next: u64,
    },
}

/// Returns the events of a run as they are committed, to the terminal one.
///
/// A batch is small, as its reader may be slow. The follower keeps only its position. While it
/// is up to date it is served from memory, else from the store, so a slow one delays no other.
#[derive(Debug)]
pub struct Follower {
    cell: Arc<RunCell>,
    store: Arc<dyn Store>,
    key: i64,
    position: u64,
    page: usize,
    progress: watch::Receiver<Progress>,
    /// The losses of the run before it followed.
    losses: u32,
}

impl Follower {
    /// `row` must have been read after `cell` was obtained: later commits reach the cell.
    pub(crate) fn new(cell: Arc<RunCell>, store: Arc<dyn Store>, row: &RunRow, after: u64) -> Self {
        let last = row.summary.last_sequence;
        let ended = row.summary.finished.is_some();
        let progress = cell.subscribe();
        cell.advance(last, ended);
        let losses = progress.borrow().losses;
        // A client that follows again after the end receives the terminal event again.
        let end = if ended { last.saturating_sub(1) } else { last };
        Self {
            cell,
            store,
            key: row.key,
            position: after.min(end),
            page: FIRST_PAGE,
            progress,
            losses,
        }
    }

    /// Returns the run.
    pub fn run(&self) -> RunId {
        self.cell.id()
    }

    /// Returns the last sequence that is known to be committed.
    pub fn high_water(&self) -> u64 {
        self.progress.borrow().sequence.max(self.position)
    }

    /// Returns the sequence up to which events were returned.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Goes back to `sequence`, so that the events after it are returned again: their reader had no
    /// room.
    pub fn rewind(&mut self, sequence: u64) {
        self.position = self.position.min(sequence);
    }

    /// Waits for the next events; `None` after the terminal event, however often it is called.
    ///
    /// Dropping the future loses no event: the next call returns the same events.
    ///
    /// # Errors
    /// [`ReadError`] when the store cannot be read, the run was dropped from memory, or the log
    /// was closed.
    pub async fn next_batch(&mut self) -> Result<Option<Batch>, ReadError> {
        loop {
            let progress = *self.progress.borrow_and_update();
            if progress.losses != self.losses {
                // Events that it returned may be gone; its reader follows again.
                return Err(StorageError::Busy.into());
            }
            if self.position < progress.sequence {
                let (after, most) = (self.position, MAX_FOLLOW_BYTES);
                let events = match self.cell.tail_after(after, PAGE, most) {
                    Some(events) => events,
                    None => self.store.page(self.key, after, self.page, most).await?,
                };
                self.page = PAGE;
                return self.take(events).map(Some);
            }
            if progress.ended {
                return Ok(None);
            }
            if progress.closed {
                return Err(StorageError::Closed.into());
            }
            // The cell holds the sender, so this cannot end before the follower does.
            let closed = |_| StorageError::Closed;
            self.progress.changed().await.map_err(closed)?;
        }
    }

    fn take(&mut self, mut events: Vec<Event>) -> Result<Batch, ReadError> {
        let expected = self.position + 1;
        let Some(first) = events.first().map(|event| event.sequence) else {
            // Committed, and not in the store any more: the run was dropped from memory.
            return Err(ReadError::NoSuchRun);
        };
        if first != expected {
            self.position = first.saturating_sub(1);
            return Ok(Batch::Gap { next: first });
        }
        let whole = events
            .iter()
            .zip(expected..)
            .take_while(|(e, at)| e.sequence == *at)
            .count();
        events.truncate(whole);
        self.position = expected + whole as u64 - 1;
        Ok(Batch::Events(events))
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.cell.unsubscribe();
    }
}
