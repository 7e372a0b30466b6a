//! What is done with a script's channels while it runs.
//!
//! A run makes the place, starts, measures and ends a script; an [`IoHandler`] feeds it and reads
//! what it writes. [`Collector`] keeps all output for one answer; the modules `stream` and
//! `session` hand it on as it comes.

use std::sync::Arc;

use sandbox_launcher::report::Layer;
use tokio::{
    net::{UnixStream, unix::pipe},
    sync::{mpsc, watch},
    task::{JoinHandle, JoinSet},
};

use super::{feed, progress};
use crate::{
    domain::{
        isolation::{MemoryEnforcement, MissingLayer},
        outcome::Captured,
        script::Script,
        verdict::Stream,
    },
    input_files::InputFiles,
    run::capture::{Overflow, capture},
};

/// The channels of a launched script, as its I/O handler receives them.
#[derive(Debug)]
pub struct ScriptIo {
    /// Deliveries of files and signals go here; without it no more of them will come.
    pub files: UnixStream,
    /// The script's standard input.
    pub stdin: pipe::Sender,
    /// The script's standard output.
    pub stdout: pipe::Receiver,
    /// The script's standard error.
    pub stderr: pipe::Receiver,
    /// The script's result channel.
    pub result: pipe::Receiver,
    /// How far the script says it is.
    pub progress: pipe::Receiver,
    /// The other end of the job channel of an interpreter that starts at once.
    pub job: Option<UnixStream>,
    /// The first delivery.
    pub delivery: InputFiles,
    /// What is run, with the content of the files.
    pub script: Arc<Script>,
    /// Layers that are known to be missing.
    pub missing: Vec<MissingLayer>,
    /// What enforces the limits on memory and processes.
    pub enforcement: MemoryEnforcement,
    /// Takes one message of each stream that passes its limit, upon which the script is ended.
    pub overflow: mpsc::Sender<Overflow>,
}

/// What an I/O handler has started.
#[derive(Debug)]
pub struct IoTasks {
    /// What the three streams held, in the order of [`ScriptIo`]; each ends when everybody who could
    /// write to it has gone.
    pub outputs: [JoinHandle<Captured>; 3],
    /// Reads the reports of progress; ends as the outputs do.
    pub progress_reader: JoinHandle<()>,
    /// What ends with the script.
    pub helpers: JoinSet<()>,
    /// Receives the reports of progress.
    pub progress: watch::Sender<Progress>,
}

/// How far a script is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The last stage that was reached.
    pub stage: Stage,
    /// Whether the interpreter ran, which the last stage does not.
    pub started: bool,
    /// Layers that the run does not have; known once it has started.
    pub missing: Vec<Layer>,
}

/// A stage in the life of a script; later ones are greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// The place is being made.
    #[default]
    Launching,
    /// The interpreter runs.
    Started,
    /// Files that were delivered after the start are in place.
    Placed,
    /// No process of it is left; what the pipes still hold is all that will come.
    Gone,
}

/// Feeds a script and takes what it writes.
pub trait IoHandler: Send {
    /// Sets everything going and returns at once.
    fn handle(self: Box<Self>, io: ScriptIo) -> IoTasks;
}

/// Keeps all output up to its limits.
#[derive(Debug)]
pub struct Collector;

impl IoHandler for Collector {
    fn handle(self: Box<Self>, io: ScriptIo) -> IoTasks {
        let ScriptIo {
            mut files,
            stdin,
            stdout,
            stderr,
            result,
            progress,
            job: _,
            missing: _,
            enforcement: _,
            delivery,
            script,
            overflow,
        } = io;
        let limits = script.limits;
        let read =
            |stream, pipe, limit| tokio::spawn(capture(stream, pipe, limit, overflow.clone()));
        let outputs = [
            read(Stream::Stdout, stdout, limits.output),
            read(Stream::Stderr, stderr, limits.output),
            read(Stream::Result, result, limits.result),
        ];
        let mut helpers = JoinSet::new();
        helpers.spawn(feed::standard_input(stdin, script.clone()));
        // A launcher that dies early closes its ends, and its reports, or their absence, tell why:
        // an error of feeding has nothing to add.
        helpers.spawn(async move {
            let _ = delivery.send(&mut files).await;
        });
        IoTasks {
            outputs,
            progress_reader: tokio::spawn(progress::follow(progress, |_| {})),
            helpers,
            progress: watch::Sender::default(),
        }
    }
}
