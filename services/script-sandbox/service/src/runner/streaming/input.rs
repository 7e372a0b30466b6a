//! The input from a caller to a running script.

use std::{collections::VecDeque, io, pin::pin, sync::Arc};

use sandbox_protocol::{channel, plan::Delivery};
use tokio::{
    io::AsyncWriteExt,
    net::{UnixStream, unix::pipe},
    sync::mpsc,
};

use super::StreamEvent;
use crate::runner::streaming::output_queue::OutputQueue;

/// The most bytes of input that wait for the script before no more is accepted from the caller.
const WAITING: usize = 256 << 10;

/// One input from the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// More standard input.
    Stdin(Vec<u8>),
    /// The end of standard input.
    End,
    /// A signal for the script's process group.
    Signal(i32),
}

/// The progress of standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StdinProgress {
    /// The number of bytes written.
    pub written: u64,
    /// The state of the stream.
    pub state: StdinState,
    /// The number of bytes dropped.
    pub dropped: u64,
}

/// The state of standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StdinState {
    /// More input is accepted.
    Open,
    /// The caller has ended it.
    Ended,
    /// The script has closed it.
    ClosedByScript,
}

/// Sends a signal to the script's process group.
///
/// # Errors
/// Fails when the launcher has ended, and the script with it.
pub(crate) async fn signal(files: &mut UnixStream, signal: i32) -> io::Result<()> {
    let order = Delivery {
        signal: Some(signal),
        ..Delivery::default()
    };
    files.write_all(&channel::frame(&order)?).await
}

/// Feeds the caller's input to the script until its end, beginning with `first` as standard input.
/// Input is accepted from the beginning, and written once `ready` returns the stream to the
/// launcher. A dead launcher, and a script that does not read, are no errors.
pub(crate) async fn feed(
    pipe: pipe::Sender,
    mut input: mpsc::Receiver<Input>,
    queue: Arc<OutputQueue<StreamEvent>>,
    first: Vec<u8>,
    ready: impl Future<Output = UnixStream>,
) {
    let mut ready = pin!(ready);
    let mut files = None;
    let mut early_signal = None;
    let mut stdin = Stdin {
        pipe: Some(pipe),
        waiting: first.into(),
        ready: false,
        ending: false,
        written: 0,
        dropped: 0,
        queue,
    };
    let mut talking = true;
    while files.is_none() || talking || stdin.has_work() {
        let takes = talking && early_signal.is_none() && stdin.waiting.len() < WAITING;
        tokio::select! {
            mut opened = &mut ready, if files.is_none() => {
                if let Some(number) = early_signal.take() {
                    let _ = signal(&mut opened, number).await;
                }
                files = Some(opened);
                stdin.ready = true;
                stdin.close_if_done();
            }
            said = input.recv(), if takes => match said {
                Some(Input::Stdin(bytes)) => stdin.add(bytes),
                Some(Input::End) => stdin.end(),
                Some(Input::Signal(number)) => match &mut files {
                    Some(files) => {
                        let _ = signal(files, number).await;
                    }
                    None => early_signal = Some(number),
                },
                None => {
                    talking = false;
                    stdin.end();
                }
            },
            () = stdin.write(), if stdin.has_work() => {}
        }
    }
}

/// The script's standard input, with the bytes that wait for it.
struct Stdin {
    /// `None` once it is closed from either side.
    pipe: Option<pipe::Sender>,
    waiting: VecDeque<u8>,
    /// Whether the script has started.
    ready: bool,
    ending: bool,
    written: u64,
    dropped: u64,
    queue: Arc<OutputQueue<StreamEvent>>,
}

impl Stdin {
    fn has_work(&self) -> bool {
        self.ready && self.pipe.is_some() && !self.waiting.is_empty()
    }

    fn add(&mut self, bytes: Vec<u8>) {
        if self.pipe.is_some() {
            self.waiting.extend(bytes);
        } else {
            self.dropped += bytes.len() as u64;
            self.tell(StdinState::ClosedByScript);
        }
    }

    fn end(&mut self) {
        self.ending = true;
        self.close_if_done();
    }

    /// Writes some of the waiting bytes. Safe to cancel.
    async fn write(&mut self) {
        let Some(pipe) = &self.pipe else {
            return;
        };
        let written = match pipe.writable().await {
            Ok(()) => pipe.try_write(self.waiting.as_slices().0),
            Err(error) => Err(error),
        };
        match written {
            Ok(written) => {
                self.waiting.drain(..written);
                self.written += written as u64;
                self.tell(StdinState::Open);
                self.close_if_done();
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => {
                self.pipe = None;
                self.dropped += self.waiting.len() as u64;
                self.waiting.clear();
                self.tell(StdinState::ClosedByScript);
            }
        }
    }

    fn close_if_done(&mut self) {
        if self.ready && self.ending && self.waiting.is_empty() && self.pipe.take().is_some() {
            self.tell(StdinState::Ended);
        }
    }

    fn tell(&self, state: StdinState) {
        let progress = StdinProgress {
            written: self.written,
            state,
            dropped: self.dropped,
        };
        self.queue.put_latest(StreamEvent::Stdin(progress), |last| {
            matches!(last, StreamEvent::Stdin(_))
        });
    }
}
