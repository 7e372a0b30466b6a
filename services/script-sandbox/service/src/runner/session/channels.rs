//! The channels of a session's interpreter, and the I/O handler that passes them to the session.

use std::io;

use sandbox_engine::{
    domain::{
        isolation::{MemoryEnforcement, MissingLayer},
        outcome::Captured,
        stream::Stream,
    },
    input_files::InputFiles,
    launcher::{ScriptIo, WorkDirectory},
    run::{
        io_handler::{IoHandler, IoTasks, Progress, RunContext},
        progress::follow,
    },
};
use tokio::{
    net::{UnixStream, unix::pipe},
    sync::{oneshot, watch},
    task::JoinSet,
};

use super::frames::{Broken, Frames, FromDriver, ToDriver};
use crate::runner::streaming::output_reader::OutputReader;

/// Passes the channels of the interpreter to the session's task.
#[derive(Debug)]
pub(super) struct SessionIo {
    pub(super) task: oneshot::Sender<SessionChannels>,
}

/// An interpreter with its channels.
#[derive(Debug)]
pub(crate) struct SessionChannels {
    pub(super) stdout: OutputReader,
    pub(super) stderr: OutputReader,
    pub(super) channel: Channel,
    /// Accepts deliveries of files and signals.
    pub(super) files: UnixStream,
    /// The session's files. There may be none: their delivery is also the sign that the interpreter is
    /// in use.
    pub(super) delivery: InputFiles,
    /// The working directory.
    pub(super) work: WorkDirectory,
    pub(super) progress: watch::Receiver<Progress>,
    pub(super) missing: Vec<MissingLayer>,
    pub(super) enforcement: MemoryEnforcement,
}

impl IoHandler for SessionIo {
    fn handle(self: Box<Self>, io: ScriptIo, context: RunContext) -> IoTasks {
        let limits = &context.script.limits;
        let progress = watch::Sender::default();
        let channels = SessionChannels {
            stdout: OutputReader::new(Stream::Stdout, io.stdout, limits),
            stderr: OutputReader::new(Stream::Stderr, io.stderr, limits),
            channel: Channel {
                job: io.job,
                outgoing: Vec::new(),
                result: io.result,
                frames: Frames::default(),
                received: 0,
            },
            files: io.files,
            delivery: context.delivery,
            work: context.work,
            progress: progress.subscribe(),
            missing: context.missing,
            enforcement: context.enforcement,
        };
        // Without the task the interpreter is not needed, and its run is about to end.
        let _ = self.task.send(channels);
        // The output belongs to the cells; the run keeps none. Standard input is dropped here:
        // there is none.
        IoTasks {
            outputs: [(); 3].map(|()| tokio::spawn(async { Captured::default() })),
            progress_reader: tokio::spawn(follow(io.progress, |_| {})),
            helpers: JoinSet::new(),
            progress,
        }
    }
}

/// The driver's channel in both directions.
#[derive(Debug)]
pub(super) struct Channel {
    job: Option<UnixStream>,
    outgoing: Vec<u8>,
    result: pipe::Receiver,
    frames: Frames,
    received: u64,
}

impl Channel {
    /// Queues a cell for the driver; [`Self::next`] sends it.
    pub(super) fn say(&mut self, message: &ToDriver<'_>) -> io::Result<()> {
        self.outgoing = sandbox_protocol::channel::frame(message)?;
        Ok(())
    }

    /// The number of bytes that the driver has written so far.
    pub(super) fn received(&self) -> u64 {
        self.received
    }

    /// Sends while it waits for the next message. Safe to cancel.
    pub(super) async fn next(&mut self) -> Result<FromDriver, Broken> {
        loop {
            if let Some(message) = self.take()? {
                return Ok(message);
            }
            self.written().await?;
            self.read(|| ())?;
        }
    }

    /// Takes the next message of those that were read.
    pub(super) fn take(&mut self) -> Result<Option<FromDriver>, Broken> {
        self.frames.take()
    }

    /// Sends while it waits until the driver has written, or has closed the channel. Safe to cancel.
    pub(super) async fn written(&mut self) -> Result<(), Broken> {
        loop {
            tokio::select! {
                readable = self.result.readable() => return readable.map_err(|_| Broken::Closed),
                () = send(self.job.as_ref(), &mut self.outgoing) => {}
            }
        }
    }

    /// Reads a part of the driver's messages. Everything that it flushed elsewhere before it began a message is
    /// there `earlier` than the part that makes that message whole.
    pub(super) fn read(&mut self, earlier: impl FnOnce()) -> Result<(), Broken> {
        let mut part = [0; 4096];
        // Bytes that come only now are left. One byte finds the end of the channel, and is no message.
        let there = rustix::io::ioctl_fionread(&self.result).unwrap_or(0);
        let size = usize::try_from(there).map_or(part.len(), |there| there.clamp(1, part.len()));
        earlier();
        match self.result.try_read(&mut part[..size]) {
            Ok(0) => Err(Broken::Closed),
            Ok(read) => {
                self.received += read as u64;
                self.frames.push(&part[..read]);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(_) => Err(Broken::Closed),
        }
    }
}

/// Sends some of the queued bytes; pends forever if none are queued.
async fn send(job: Option<&UnixStream>, outgoing: &mut Vec<u8>) {
    let Some(job) = job.filter(|_| !outgoing.is_empty()) else {
        return std::future::pending().await;
    };
    let sent = match job.writable().await {
        Ok(()) => job.try_write(outgoing),
        Err(error) => Err(error),
    };
    match sent {
        Ok(sent) => drop(outgoing.drain(..sent)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        // The receiving side notices a dead driver.
        Err(_) => outgoing.clear(),
    }
}
