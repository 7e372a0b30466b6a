//! What is done with a script's channels while it runs.
//!
//! A run makes the place, starts, measures and ends a script; an [`Attendant`] feeds it and takes
//! what it writes. [`Collector`] keeps all output for one answer; the modules `stream` and
//! `session` hand it on as it comes.

use std::sync::Arc;

use sandbox_launcher::report::Layer;
use tokio::{
    net::{UnixStream, unix::pipe},
    sync::{mpsc, watch},
    task::{JoinHandle, JoinSet},
};

use super::{
    feed,
    output::{Overflow, capture},
};
use crate::{
    domain::{
        isolation::{MemoryEnforcement, MissingLayer},
        outcome::Captured,
        request::Script,
        verdict::Stream,
    },
    placing::Placing,
};

/// A launched script, as its attendant gets it.
#[derive(Debug)]
pub(crate) struct Charge {
    /// Deliveries of files and signals go here; without it no more of them will come.
    pub(crate) files: UnixStream,
    /// The script's standard input.
    pub(crate) stdin: pipe::Sender,
    /// The script's standard output.
    pub(crate) stdout: pipe::Receiver,
    /// The script's standard error.
    pub(crate) stderr: pipe::Receiver,
    /// The script's result channel.
    pub(crate) result: pipe::Receiver,
    /// The other end of the job channel of an interpreter that starts at once.
    pub(crate) job: Option<UnixStream>,
    /// The first delivery.
    pub(crate) delivery: Placing,
    /// What is run, with the content of the files.
    pub(crate) script: Arc<Script>,
    /// Layers that are known to be missing.
    pub(crate) missing: Vec<MissingLayer>,
    /// What enforces the limits on memory and processes.
    pub(crate) enforcement: MemoryEnforcement,
    /// Takes one message of each stream that passes its limit, upon which the script is ended.
    pub(crate) overflow: mpsc::Sender<Overflow>,
}

/// What an attendant has set going.
#[derive(Debug)]
pub(crate) struct Attended {
    /// What the three streams held, in the order of [`Charge`]; each ends when everybody who could
    /// write to it has gone.
    pub(crate) outputs: [JoinHandle<Captured>; 3],
    /// What ends with the script.
    pub(crate) helpers: JoinSet<()>,
    /// Is told how far the script is.
    pub(crate) progress: watch::Sender<Progress>,
}

/// How far a script is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// The last stage that was reached.
    pub(crate) stage: Stage,
    /// Whether the interpreter ran, which the last stage does not.
    pub(crate) started: bool,
    /// Layers that the run does not have; known once it has started.
    pub(crate) missing: Vec<Layer>,
}

/// A stage in the life of a script; later ones are greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// The place is being made.
    #[default]
    Launching,
    /// The interpreter runs.
    Started,
    /// Files that were delivered after the start are in place.
    Placed,
    /// Nobody of it is left; what the pipes still hold is all that will come.
    Gone,
}

/// Feeds a script and takes what it writes.
pub(crate) trait Attendant: Send {
    /// Sets everything going and returns at once.
    fn attend(self: Box<Self>, charge: Charge) -> Attended;
}

/// Keeps all output up to its limits.
#[derive(Debug)]
pub(crate) struct Collector;

impl Attendant for Collector {
    fn attend(self: Box<Self>, charge: Charge) -> Attended {
        let Charge {
            mut files,
            stdin,
            stdout,
            stderr,
            result,
            job: _,
            missing: _,
            enforcement: _,
            delivery,
            script,
            overflow,
        } = charge;
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
        Attended {
            outputs,
            helpers,
            progress: watch::Sender::default(),
        }
    }
}
