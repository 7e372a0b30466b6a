//! Streaming: a script's output is sent to its caller as it arrives, and its input and signals come
//! from the caller.
//!
//! [`output_queue`] holds the output between a script and a slow reader, [`output_reader`] reads a
//! pipe into it, [`input`] feeds the script, and [`stream_io`] combines them for one run.

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

/// An event of a script, except its output.
#[derive(Clone, Debug)]
pub enum StreamEvent {
    /// The interpreter runs.
    Started(Started),
    /// Input was written, or is closed.
    Stdin(StdinProgress),
    /// It reported its progress.
    Progress(ScriptProgress),
    /// It has ended.
    Ended(Arc<Outcome>),
}

/// The start of the interpreter.
#[derive(Clone, Debug, PartialEq)]
pub struct Started {
    /// The runtime's own name.
    pub runtime: String,
    /// The level.
    pub isolation: IsolationLevel,
    /// Layers that the run lacks.
    pub missing: Vec<MissingLayer>,
    /// The mechanism that enforces the limits on memory and processes.
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

    /// The next item, or `None` if no more will come, waited for at most `patience`.
    ///
    /// # Errors
    /// Fails when none arrives in that time.
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
