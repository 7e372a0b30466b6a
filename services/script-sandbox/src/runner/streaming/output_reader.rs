//! Reads one of a script's text streams into an output queue.

use std::io;

use sandbox_engine::domain::{outcome::Captured, verdict::Stream};
use tokio::net::unix::pipe;

use crate::runner::streaming::output_queue::{CHUNK, Chunk, OutputQueue, QueueSpace};

/// One stream with what was read of it. Its figures can be begun anew, while the stream continues.
#[derive(Debug)]
pub(crate) struct OutputReader {
    stream: Stream,
    pipe: pipe::Receiver,
    buffer: Box<[u8]>,
    limit: u64,
    sent: u64,
    truncated: u64,
    ended: bool,
}

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moved {
    /// Some bytes.
    Some,
    /// Some bytes, by which the limit was passed.
    Over,
    /// Every writer has closed it.
    End,
}

impl OutputReader {
    pub(crate) fn new(stream: Stream, pipe: pipe::Receiver, limit: usize) -> Self {
        Self {
            stream,
            pipe,
            buffer: vec![0; CHUNK].into_boxed_slice(),
            limit: limit as u64,
            sent: 0,
            truncated: 0,
            ended: false,
        }
    }

    /// Returns whether every writer has closed it.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// How many bytes were read since the figures were begun.
    pub(crate) fn read(&self) -> u64 {
        self.sent + self.truncated
    }

    /// Begins the figures anew, and gives the old ones.
    pub(crate) fn renew(&mut self, limit: usize) -> Captured {
        let old = self.captured();
        (self.limit, self.sent, self.truncated) = (limit as u64, 0, 0);
        old
    }

    /// The figures.
    pub(crate) fn captured(&self) -> Captured {
        Captured {
            bytes: Vec::new(),
            truncated: self.truncated,
            sent: self.sent,
        }
    }

    /// Moves one chunk, waiting for it and for room. Nothing is lost if it is given up.
    pub(crate) async fn step<E>(&mut self, queue: &OutputQueue<E>) -> Moved {
        // What is over the limit is read and counted, so that the script does not hang.
        let room = match self.truncated {
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

    /// Moves what the pipe holds at this moment, without waiting for room: no more than a pipe can
    /// hold.
    pub(crate) fn drain<E>(&mut self, queue: &OutputQueue<E>) {
        let mut left = rustix::io::ioctl_fionread(&self.pipe).unwrap_or(0);
        while left > 0 {
            // Past the runtime, which may not have heard yet that the pipe can be read.
            match rustix::io::read(&self.pipe, &mut *self.buffer) {
                Ok(read) if read > 0 => {
                    self.take(read, QueueSpace::default(), queue);
                    left = left.saturating_sub(read as u64);
                }
                _ => return,
            }
        }
    }

    fn take<E>(&mut self, read: usize, room: QueueSpace, queue: &OutputQueue<E>) -> Moved {
        let fits = usize::try_from(self.limit.saturating_sub(self.sent))
            .unwrap_or(usize::MAX)
            .min(read);
        if fits > 0 {
            let chunk = Chunk {
                stream: self.stream,
                offset: self.sent,
                bytes: self.buffer[..fits].to_vec(),
            };
            queue.output(room, chunk);
            self.sent += fits as u64;
        }
        let first = self.truncated == 0 && fits < read;
        self.truncated += (read - fits) as u64;
        if first { Moved::Over } else { Moved::Some }
    }
}
