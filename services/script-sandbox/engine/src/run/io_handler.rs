//! Handles a script's channels while it runs.
//!
//! A run makes the slot, starts, measures and ends a script; an [`IoHandler`] feeds it and reads
//! its output. [`Collector`] keeps all output for one answer; the modules `streaming` and `session`
//! of the service hand it on as it arrives.

use std::sync::Arc;

use sandbox_protocol::report::Layer;
use tokio::{
    io::AsyncWriteExt,
    sync::{mpsc, watch},
    task::{JoinHandle, JoinSet},
};

use super::progress;
use crate::{
    domain::{
        isolation::{MemoryEnforcement, MissingLayer},
        outcome::Captured,
        script::Script,
        stream::Stream,
        verdict::Stopped,
    },
    input_files::InputFiles,
    launcher::{ScriptIo, WorkDirectory},
    run::capture::capture,
};

/// The context of an I/O handler, apart from the channels of the script.
#[derive(Debug)]
pub struct RunContext {
    /// The first delivery.
    pub delivery: InputFiles,
    /// The script, with the content of the files.
    pub script: Arc<Script>,
    /// Layers that are known to be missing.
    pub missing: Vec<MissingLayer>,
    /// The mechanism that enforces the limits on memory and processes.
    pub enforcement: MemoryEnforcement,
    /// Accepts one message of each stream that becomes a flood, upon which the script is ended.
    pub overflow: mpsc::Sender<Stopped>,
    /// The working directory.
    pub work: WorkDirectory,
}

/// The tasks that an I/O handler has started.
#[derive(Debug)]
pub struct IoTasks {
    /// The captures of standard output, standard error and the result channel; each ends when every
    /// process that could write to it has ended.
    pub outputs: [JoinHandle<Captured>; 3],
    /// Reads the reports of progress; ends as the outputs do.
    pub progress_reader: JoinHandle<()>,
    /// Tasks that end with the script.
    pub helpers: JoinSet<()>,
    /// Accepts the reports of progress.
    pub progress: watch::Sender<Progress>,
}

/// The progress of a script through its stages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The last stage that was reached.
    pub stage: Stage,
    /// Whether the interpreter ran; the last stage does not imply it.
    pub started: bool,
    /// Layers that the run does not have; known once it has started.
    pub missing: Vec<Layer>,
    /// The number of deliveries that are in place.
    pub placed: u64,
    /// The files of the last one that could not be placed, by their positions.
    pub refused: Vec<u32>,
}

/// A stage in the life of a script; later ones are greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// The slot is being made.
    #[default]
    Launching,
    /// The interpreter runs.
    Started,
    /// Files that were delivered after the start are in place.
    Placed,
    /// No process of the script is left; the pipes hold the rest of the output.
    Gone,
}

/// Feeds a script and reads its output.
pub trait IoHandler: Send {
    /// Starts all tasks and returns at once.
    fn handle(self: Box<Self>, io: ScriptIo, context: RunContext) -> IoTasks;
}

/// Keeps all output up to its limits.
#[derive(Debug)]
pub struct Collector;

impl IoHandler for Collector {
    fn handle(self: Box<Self>, io: ScriptIo, context: RunContext) -> IoTasks {
        let RunContext {
            delivery,
            script,
            overflow,
            ..
        } = context;
        let (mut files, mut stdin) = (io.files, io.stdin);
        let limits = script.limits;
        let read = |stream, pipe| tokio::spawn(capture(stream, pipe, limits, overflow.clone()));
        let outputs = [
            read(Stream::Stdout, io.stdout),
            read(Stream::Stderr, io.stderr),
            read(Stream::Result, io.result),
        ];
        let mut helpers = JoinSet::new();
        // A script need not read its input to the end.
        helpers.spawn(async move { drop(stdin.write_all(&script.stdin).await) });
        // A launcher that dies early closes its ends, and its reports, or their absence, give the
        // reason: an error of feeding adds no information.
        helpers.spawn(async move { drop(delivery.send(&mut files).await) });
        IoTasks {
            outputs,
            progress_reader: tokio::spawn(progress::follow(io.progress, |_| {})),
            helpers,
            progress: watch::Sender::default(),
        }
    }
}
