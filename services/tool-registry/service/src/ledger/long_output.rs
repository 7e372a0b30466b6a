//! Outputs that are too long for the event that settles their call.
//!
//! The text stands in the ledger's entry in chunks of one size, directly before the event that settles
//! the call, so that the place of a byte names its chunk.

use call_outcome::{Category, Failure, LongOutput};
use contracts::tavern::common::v1::CallResult;
use core_types::{Clock, Durability};
use run_log::{AppendError, Event, NewEvent, RunState, RunSummary, RunWriter, StorageError};
use std::sync::Arc;
use tonic::Status;

use super::{Entry, Ledger, MAX_EVENTS, Settled, codec};

/// The most of an output that the event which settles its call holds, in bytes.
pub const MAX_INLINE_BYTES: usize = 960 << 10;
/// The longest output that is kept, in bytes.
const MAX_BYTES: u64 = 64 << 20;
/// The same for a call in memory, of which there is little.
const MAX_BYTES_IN_MEMORY: u64 = 8 << 20;
/// The number of events that hold a chunk. It is beyond the kinds of run events.
const CHUNK_EVENT: i32 = 101;
/// The phase of an entry that holds chunks.
const HOLDS_CHUNKS: i32 = 1;
/// The most events in front of the chunks that an entry needs.
const MAX_BEFORE_CHUNKS: usize = 128;
/// Every chunk but the last has as many bytes.
const CHUNK_BYTES: usize = 256 << 10;
/// The beginning of an output that its result holds, in bytes.
const HEAD_BYTES: usize = 16 << 10;

/// Keeps an output in the entry of its call, piece by piece.
pub struct OutputKeeper {
    entry: RunWriter,
    clock: Arc<dyn Clock>,
    most: u64,
    head: String,
    total: u64,
    chunk: Vec<u8>,
}

impl std::fmt::Debug for OutputKeeper {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("OutputKeeper")
            .field("total", &self.total)
            .finish_non_exhaustive()
    }
}

impl OutputKeeper {
    /// Begins to keep the output of the call with this entry.
    pub fn new(entry: RunWriter, clock: Arc<dyn Clock>, durability: Durability) -> Self {
        let most = match durability {
            Durability::Memory => MAX_BYTES_IN_MEMORY,
            Durability::Sync | Durability::Batched => MAX_BYTES,
        };
        Self {
            entry,
            clock,
            most,
            head: String::new(),
            total: 0,
            chunk: Vec::new(),
        }
    }

    /// Adds the next piece.
    ///
    /// # Errors
    /// A failure when the output is longer than is kept, or cannot be stored.
    pub async fn push(&mut self, text: &str) -> Result<(), Failure> {
        if self.head.len() as u64 == self.total {
            let room = HEAD_BYTES - self.head.len();
            let head = &text[..text.floor_char_boundary(room)];
            self.head.push_str(head);
        }
        self.total += text.len() as u64;
        if self.total > self.most {
            return Err(too_large(self.most));
        }
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(CHUNK_BYTES - self.chunk.len()));
            self.chunk.extend_from_slice(now);
            rest = later;
            if self.chunk.len() == CHUNK_BYTES {
                self.store().await?;
            }
        }
        Ok(())
    }

    /// Stores the rest and returns the reference to the output.
    ///
    /// # Errors
    /// A failure when it cannot be stored.
    pub async fn finish(mut self) -> Result<LongOutput, Failure> {
        if !self.chunk.is_empty() {
            self.store().await?;
        }
        Ok(LongOutput {
            head: self.head,
            total_bytes: self.total,
        })
    }

    async fn store(&mut self) -> Result<(), Failure> {
        let chunk = std::mem::take(&mut self.chunk);
        let event = NewEvent::new(self.clock.now(), CHUNK_EVENT, chunk);
        match self.entry.enter(HOLDS_CHUNKS, vec![event]).await {
            Ok(_) => Ok(()),
            Err(AppendError::Storage(StorageError::Full)) => Err(too_large(self.most)),
            Err(error) => {
                tracing::error!(
                    error = %grpc_kit::failure::chain(&error),
                    "a long output could not be stored"
                );
                let message = "the tool did what it was asked, but its output could not be stored; \
                               the log has the reason";
                Err(Failure::new(Category::Internal, "output_not_kept", message))
            }
        }
    }
}

/// A part of an output.
#[derive(Debug)]
pub struct OutputPart {
    /// The text.
    pub text: String,
    /// The size of the whole output in bytes.
    pub total_bytes: u64,
}

impl Ledger {
    /// Reads up to `limit` bytes of an output, from the byte `offset` on, up to the end of a character.
    /// Returns nothing if `offset` lies beyond the end or inside a character.
    ///
    /// # Errors
    /// A failure when the log cannot be read.
    pub async fn read_output(
        &self,
        settled: &Settled,
        offset: u64,
        limit: usize,
    ) -> Result<Option<OutputPart>, Status> {
        let Some(long) = &settled.result.long_output else {
            let output = settled.result.output_json.as_bytes();
            let begin = usize::try_from(offset).unwrap_or(usize::MAX);
            let part = output.get(begin..);
            return Ok(part.and_then(|part| part_of(part, limit, output.len() as u64)));
        };
        if offset > long.total_bytes {
            return Ok(None);
        }
        let chunk = CHUNK_BYTES as u64;
        let chunks = long.total_bytes.div_ceil(chunk);
        let summary = &settled.entry.summary;
        let before = summary.last_sequence.saturating_sub(1 + chunks) + offset / chunk;
        let wanted = (offset % chunk) as usize + limit;
        let events = self
            .logs
            .read(summary.id, before, wanted.div_ceil(CHUNK_BYTES))
            .await;
        let events = events.map_err(|error| grpc_kit::internal(&error))?;
        let mut bytes = Vec::new();
        for event in events.iter().filter(|event| event.kind == CHUNK_EVENT) {
            bytes.extend_from_slice(&event.payload);
        }
        let part = bytes.get((offset % chunk) as usize..).unwrap_or_default();
        Ok(part_of(part, limit, long.total_bytes))
    }

    /// Reads the result of an attempt as its tool returned it, before its hooks; none if no hook saw it.
    ///
    /// # Errors
    /// A failure when the log cannot be read.
    pub async fn raw_result(&self, entry: &Entry) -> Result<Option<CallResult>, Status> {
        let events = self.logs.read(entry.summary.id, 0, MAX_BEFORE_CHUNKS).await;
        let events = events.map_err(|error| grpc_kit::internal(&error))?;
        codec::returned_in(&events)
    }

    /// Reads the events of an entry, without the chunks of an output.
    pub(super) async fn events(&self, summary: &RunSummary) -> Result<Vec<Event>, Status> {
        let read = async |after, limit| {
            let events = self.logs.read(summary.id, after, limit).await;
            events.map_err(|error| grpc_kit::internal(&error))
        };
        if summary.phase != HOLDS_CHUNKS {
            return read(0, MAX_EVENTS).await;
        }
        let mut events = match summary.state {
            // The result before its hooks stands in front of the chunks.
            RunState::Open => read(0, MAX_BEFORE_CHUNKS).await?,
            _ => read(0, 1).await?,
        };
        let last = summary.last_sequence.saturating_sub(1);
        let read_to = events.last().map_or(0, |event| event.sequence);
        events.extend(read(last.max(read_to), 1).await?);
        events.retain(|event| event.kind != CHUNK_EVENT);
        Ok(events)
    }
}

/// Reads the text at the beginning of `bytes`; nothing if they begin inside a character.
fn part_of(bytes: &[u8], limit: usize, total_bytes: u64) -> Option<OutputPart> {
    let bytes = &bytes[..bytes.len().min(limit)];
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return None,
    };
    Some(OutputPart {
        text: text.to_owned(),
        total_bytes,
    })
}

/// Returns the failure of a call whose output is longer than `most` bytes.
fn too_large(most: u64) -> Failure {
    let message = format!(
        "the tool did what it was asked, but its output is longer than the {most} bytes that are kept; \
         ask for less at once"
    );
    Failure::new(Category::Limit, "output_too_large", message)
}
