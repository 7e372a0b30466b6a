//! The messages of a session's driver.
//!
//! What comes from there may have been written by the code of a cell as well: it is believed as far
//! as that session's own cells go, and its size is bounded whatever it says about itself.

use serde::{Deserialize, Serialize};

use crate::domain::session::DriverOutcome;

mod traceback;

pub use traceback::{Frame, MAX_TRACEBACK_FRAMES, Traceback};

/// The longest frame: a value or an error of the largest size, and what JSON adds to it.
pub const MAX_FRAME_BYTES: usize = 4 << 20;

/// The longest name of an error's type that is handed on, and the longest message where values are
/// shorter, in bytes.
const MAX_ERROR_TEXT: usize = 16 << 10;

/// What is said to a driver.
#[derive(Clone, Debug, Serialize)]
pub struct ToDriver<'a> {
    /// The number of the cell.
    pub cell: u64,
    /// Its code.
    pub source: &'a str,
    /// The most bytes of a value's text, and again of an error's.
    pub limit: usize,
}

/// What a driver says.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromDriver {
    /// It waits for cells.
    Ready {},
    /// A cell has ended.
    Done(Done),
}

/// How a cell ended.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Done {
    /// Its number.
    pub cell: u64,
    /// How.
    pub outcome: DriverOutcome,
    /// What its last expression gave.
    #[serde(default)]
    pub value: Option<Value>,
    /// What went wrong.
    #[serde(default)]
    pub error: Option<CellError>,
}

/// What an expression gave.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Value {
    /// How it is shown.
    pub text: String,
    /// How many bytes were cut.
    #[serde(default)]
    pub truncated: u64,
}

/// What went wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct CellError {
    /// The type.
    pub r#type: String,
    /// What it says.
    pub message: String,
    /// Where it happened.
    pub frames: Traceback,
    /// How many were left out in the middle.
    pub omitted: u32,
    /// The same as text.
    pub text: String,
}

/// Why a driver's channel is of no more use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// The driver has closed it, or is gone.
    #[error("the driver's channel was closed")]
    Closed,
    /// It would be too long.
    #[error("a message of {declared} bytes")]
    TooLong {
        /// What its head says.
        declared: usize,
    },
    /// It is not JSON, or not of the right form.
    #[error("a message that cannot be read")]
    Malformed,
}

/// Bytes that have come, until they make up messages.
#[derive(Debug, Default)]
pub struct Frames {
    bytes: Vec<u8>,
}

impl Frames {
    /// Adds bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Takes the next whole message; `None` if it has not come yet.
    ///
    /// # Errors
    /// When what has come is not a message; nothing after it can be read either.
    pub fn take(&mut self) -> Result<Option<FromDriver>, Broken> {
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
        let message = serde_json::from_slice(body).map_err(|_| Broken::Malformed)?;
        self.bytes.drain(..head.len() + declared);
        Ok(Some(message))
    }
}

impl Done {
    /// Cuts everything to what may be handed on, with texts of at most `limit` bytes. A driver keeps
    /// to it by itself.
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

/// Cuts a text at a character, and gives back the room that it took; returns how many bytes were cut.
fn cut(text: &mut String, most: usize) -> u64 {
    let before = text.len();
    text.truncate(text.floor_char_boundary(most));
    text.shrink_to_fit();
    (before - text.len()) as u64
}

#[cfg(test)]
mod tests;
