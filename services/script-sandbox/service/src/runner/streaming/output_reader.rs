//! Reads one of a script's text streams into an output queue.

use std::io;

use sandbox_engine::domain::{limits::Limits, outcome::Captured, stream::Stream};
use tokio::net::unix::pipe;

use crate::runner::streaming::output_queue::{CHUNK, Chunk, OutputQueue, QueueSpace};

/// One stream with the figures of the bytes read. The figures can restart while the stream
/// continues.
#[derive(Debug)]
pub(crate) struct OutputReader {
    stream: Stream,
    pipe: pipe::Receiver,
    buffer: Box<[u8]>,
    limit: u64,
    flood: u64,
    figures: Captured,
    ended: bool,
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moved {
    /// Some bytes.
    Some,
    /// Some bytes, by which the stream became a flood.
    Flood,
    /// Every writer has closed it.
    End,
}

impl OutputReader {
    pub(crate) fn new(stream: Stream, pipe: pipe::Receiver, limits: &Limits) -> Self {
        Self {
            stream,
            pipe,
            buffer: vec![0; CHUNK].into_boxed_slice(),
            limit: limits.kept(stream) as u64,
            flood: limits.flood(stream),
            figures: Captured::default(),
            ended: false,
        }
    }

    /// Returns whether every writer has closed it.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// The number of bytes read since the figures restarted.
    pub(crate) fn read(&self) -> u64 {
        self.figures.read()
    }

    /// Restarts the figures, with the limits of a cell.
    pub(crate) fn renew(&mut self, limits: &Limits) {
        self.limit = limits.kept(self.stream) as u64;
        self.flood = limits.flood(self.stream);
        self.figures = Captured::default();
    }

    /// Returns the figures and the end of the bytes that were not sent, and restarts them.
    pub(crate) fn take_captured(&mut self) -> Captured {
        std::mem::take(&mut self.figures)
    }

    /// Moves one chunk, waiting for it and for space. Safe to cancel.
    pub(crate) async fn step<E>(&mut self, queue: &OutputQueue<E>) -> Moved {
        // Bytes over the limit are read and counted, so that the script does not hang.
        let room = match self.figures.truncated {
            0 => queue.room().await,
            _ => QueueSpace::default(),
        };
        loop {
            if self.pipe.readable().await.is_err() {
                self.ended = true;
                return Moved::End;
            }
            match self.pipe.try_read(&mut self.buffer) {
                Ok(read) if read > 0 => return self.take(read, room, queue),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(_) | Err(_) => {
                    self.ended = true;
                    return Moved::End;
                }
            }
        }
    }

    /// Moves the present content of the pipe, without waiting for space: at most the capacity of a
    /// pipe. Returns whether the stream became a flood by it.
    pub(crate) fn drain<E>(&mut self, queue: &OutputQueue<E>) -> Moved {
        let mut moved = Moved::Some;
        let mut left = rustix::io::ioctl_fionread(&self.pipe).unwrap_or(0);
        while left > 0 {
            // Bypasses the runtime, which may not know yet that the pipe is readable.
            match rustix::io::read(&self.pipe, &mut *self.buffer) {
                Ok(read) if read > 0 => {
                    if self.take(read, QueueSpace::default(), queue) == Moved::Flood {
                        moved = Moved::Flood;
                    }
                    left = left.saturating_sub(read as u64);
                }
                _ => break,
            }
        }
        moved
    }

    fn take<E>(&mut self, read: usize, room: QueueSpace, queue: &OutputQueue<E>) -> Moved {
        let before = self.read();
        let fits = usize::try_from(self.limit.saturating_sub(self.figures.sent))
            .unwrap_or(usize::MAX)
            .min(read);
        let (sent, cut) = self.buffer[..read].split_at(fits);
        if !sent.is_empty() {
            let chunk = Chunk {
                stream: self.stream,
                offset: self.figures.sent,
                bytes: sent.to_vec(),
            };
            queue.output(room, chunk);
            self.figures.sent += sent.len() as u64;
        }
        self.figures.cut(cut);
        let is_flood = before <= self.flood && self.read() > self.flood;
        if is_flood { Moved::Flood } else { Moved::Some }
    }
}
