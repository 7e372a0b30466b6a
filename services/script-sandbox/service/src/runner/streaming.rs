//! Streaming: a script's output is sent to its caller as it comes, and its input and
//! signals come from the caller.
//!
//! [`output_queue`] is what lies between a script and a reader that may be slow, [`output_reader`] takes a pipe into
//! it, [`input`] feeds the script, and [`stream_io`] puts them together for one run.

pub mod output_queue;

pub(crate) mod input;
pub(crate) mod output_reader;
pub(crate) mod stream_io;

use std::{sync::Arc, time::Duration};

use sandbox_engine::domain::{
    isolation::{IsolationLevel, MemoryEnforcement, MissingLayer},
    limits::Limits,
    outcome::Outcome,
    progress::ScriptProgress,
};
use tokio::{
    sync::oneshot,
    time::{Instant, error::Elapsed},
};

pub use input::{Input, StdinProgress, StdinState};
use output_queue::{Item, OutputQueue};

/// Something that happens to a script, its output aside.
#[derive(Clone, Debug)]
pub enum StreamEvent {
    /// The interpreter runs.
    Started(Started),
    /// Input was handed over, or is closed.
    Stdin(StdinProgress),
    /// It reported its progress.
    Progress(ScriptProgress),
    /// It has ended.
    Ended(Arc<Outcome>),
}

/// The interpreter runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Started {
    /// The runtime's own name.
    pub runtime: String,
    /// The level.
    pub isolation: IsolationLevel,
    /// Layers that the run does not have.
    pub missing: Vec<MissingLayer>,
    /// What enforces the limits on memory and processes.
    pub enforcement: MemoryEnforcement,
    /// The limits in force.
    pub limits: Limits,
}

/// The reader's side of a run or a cell. Dropping it ends the run, or interrupts the cell.
#[derive(Debug)]
pub struct StreamHandle<E> {
    queue: Arc<OutputQueue<E>>,
    _here: oneshot::Sender<()>,
}

impl<E> StreamHandle<E> {
    /// Makes a handle, and a receiver that ends when the handle is dropped.
    pub(crate) fn new(queue: Arc<OutputQueue<E>>) -> (Self, oneshot::Receiver<()>) {
        let (here, gone) = oneshot::channel();
        let stream = Self { queue, _here: here };
        (stream, gone)
    }

    /// The next thing that happened, or nothing if no more will come, waited for at most this long.
    ///
    /// # Errors
    /// When nothing has happened in that time.
    pub async fn next(&self, patience: Duration) -> Result<Option<Item<E>>, Elapsed> {
        tokio::time::timeout(patience, self.queue.take()).await
    }
}

/// Waits until the reader has gone or its deadline has passed.
pub(crate) async fn left(gone: &mut oneshot::Receiver<()>, deadline: Instant) {
    tokio::select! {
        _ = gone => {}
        () = tokio::time::sleep_until(deadline) => {}
    }
}
