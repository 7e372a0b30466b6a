//! The messages of a session's driver.
//!
//! The code of a cell may have written these messages as well: they are trusted only for that
//! session's own cells, and their size is bounded whatever they declare.

use serde::{Deserialize, Serialize};

use crate::domain::session::DriverOutcome;

mod bundle;
pub(super) mod json;
mod traceback;

pub use bundle::{Origin, ShownResult};
pub use traceback::{Frame, MAX_TRACEBACK_FRAMES, Traceback};

/// The longest frame: a value or an error of the largest size, with the overhead of JSON.
pub const MAX_FRAME_BYTES: usize = 4 << 20;

/// The longest message that comes in pieces: a result of the largest size in Base64, with the overhead of JSON.
pub const MAX_MESSAGE_BYTES: usize = 16 << 20;

/// The longest name of an error's type that is passed on, and the longest message where values are
/// shorter, in bytes.
const MAX_ERROR_TEXT: usize = 16 << 10;

/// A message to a driver.
#[derive(Clone, Debug, Serialize)]
pub struct ToDriver<'a> {
    /// The number of the cell.
    pub cell: u64,
    /// Its code.
    pub source: &'a str,
    /// The most bytes of a value's text, and again of an error's.
    pub limit: usize,
}

/// A message from a driver.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromDriver {
    /// It waits for cells.
    Ready {},
    /// A cell has ended.
    Done(Done),
    /// A cell has a result.
    Result(ShownResult),
    /// Something else, or a message of which a piece is missing: a result that is lost.
    #[serde(skip)]
    Lost,
}

/// The end of a cell.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Done {
    /// Its number.
    pub cell: u64,
    /// The outcome.
    pub outcome: DriverOutcome,
    /// The value of its last expression.
    #[serde(default)]
    pub value: Option<Value>,
    /// The error.
    #[serde(default)]
    pub error: Option<CellError>,
    /// The number of results that the driver has not reported.
    #[serde(default)]
    pub dropped: u32,
}

/// The value of an expression.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Value {
    /// Its text.
    pub text: String,
    /// The number of bytes cut.
    #[serde(default)]
    pub truncated: u64,
}

/// An error of a cell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct CellError {
    /// The type.
    pub r#type: String,
    /// The message.
    pub message: String,
    /// The traceback.
    pub frames: Traceback,
    /// The number of frames left out in the middle.
    pub omitted: u32,
    /// The error as text.
    pub text: String,
}

/// The reason why a driver's channel is unusable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// The driver has closed it, or has died.
    #[error("the driver's channel was closed")]
    Closed,
    /// A frame is too long.
    #[error("a message of {declared} bytes")]
    TooLong {
        /// The length in its head.
        declared: usize,
    },
    /// A message is not JSON.
    #[error("a message that cannot be read")]
    Malformed,
}

/// Received bytes that do not yet make up a message.
#[derive(Debug, Default)]
pub struct Frames {
    bytes: Vec<u8>,
    /// The pieces of a message that has begun.
    pieces: Option<Vec<u8>>,
}

impl Frames {
    /// Adds bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Takes the next whole message; `None` if it has not arrived yet.
    ///
    /// # Errors
    /// Fails when the bytes are not a message; later messages cannot be read either.
    pub fn take(&mut self) -> Result<Option<FromDriver>, Broken> {
        loop {
            let Some((head, rest)) = self.bytes.split_first_chunk::<4>() else {
                return Ok(None);
            };
            let declared = u32::from_le_bytes(*head) as usize;
            if declared > MAX_FRAME_BYTES {
                return Err(Broken::TooLong { declared });
            }
            let Some(body) = rest.get(..declared) else {
                return Ok(None);
            };
            let message = match body.split_first() {
                Some((mark @ (b'<' | b'+' | b'>'), piece)) => join(&mut self.pieces, *mark, piece)?,
                // A message in pieces was not completed.
                _ if self.pieces.take().is_some() => return Ok(Some(FromDriver::Lost)),
                _ => Some(read(body)?),
            };
            self.bytes.drain(..4 + declared);
            if message.is_some() {
                return Ok(message);
            }
        }
    }
}

/// Adds a piece to those before it. Returns the message that it completes, or the loss of one.
fn join(
    pieces: &mut Option<Vec<u8>>,
    mark: u8,
    piece: &[u8],
) -> Result<Option<FromDriver>, Broken> {
    let lost = Ok(Some(FromDriver::Lost));
    let before = pieces.take();
    if mark == b'<' {
        *pieces = Some(piece.to_vec());
        return if before.is_none() { Ok(None) } else { lost };
    }
    let Some(mut bytes) = before.filter(|it| it.len() + piece.len() <= MAX_MESSAGE_BYTES) else {
        return lost;
    };
    bytes.extend_from_slice(piece);
    if mark == b'>' {
        return read(&bytes).map(Some);
    }
    *pieces = Some(bytes);
    Ok(None)
}

/// Reads a message. JSON that is no message of a driver is taken for a lost result.
fn read(body: &[u8]) -> Result<FromDriver, Broken> {
    match serde_json::from_slice(body) {
        Ok(message) => Ok(message),
        Err(_) if json::is_json(body) => Ok(FromDriver::Lost),
        Err(_) => Err(Broken::Malformed),
    }
}

impl Done {
    /// Cuts everything to the bounds for passing on, with texts of at most `limit` bytes. An honest
    /// driver already keeps to them.
    #[must_use]
    pub fn bounded(mut self, limit: usize) -> Self {
        if let Some(value) = &mut self.value {
            value.truncated = value.truncated.saturating_add(cut(&mut value.text, limit));
        }
        if let Some(error) = &mut self.error {
            cut(&mut error.text, limit);
            cut(&mut error.r#type, MAX_ERROR_TEXT);
            cut(&mut error.message, MAX_ERROR_TEXT.max(limit));
            error.frames.cut();
            error.omitted = error.omitted.saturating_add(error.frames.omitted);
        }
        self
    }
}

/// Cuts a text at a character, and frees the room that it took; returns the number of bytes cut.
fn cut(text: &mut String, most: usize) -> u64 {
    let before = text.len();
    text.truncate(text.floor_char_boundary(most));
    text.shrink_to_fit();
    (before - text.len()) as u64
}

#[cfg(test)]
mod tests;
