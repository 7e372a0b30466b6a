//! The reports of an incremental parse while the model is still writing.

use std::sync::Arc;

use call_catalogue::{Diagnostic, Dialect, Span};
use serde::{Deserialize, Serialize};

use crate::{Block, Call};

/// The resolution of a call's tool, once its name has been read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolState {
    /// Visible, with its id.
    Visible(String),
    /// Known and not available: a reason to stop the model.
    NotAvailable,
    /// The plugin that brought it is gone, or does not bring it any more: a reason to stop the model.
    Removed,
    /// Unknown, with up to three near names: a reason to stop the model.
    Unknown(Vec<String>),
}

/// One step of an incremental parse. Equal for every way of cutting the text, once neighbouring
/// deltas are joined (G5).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// Text that can no longer become a call.
    Text {
        /// The place in the message.
        span: Span,
        /// The text.
        text: String,
        /// Whether it comes after the first block and is logged only (A3).
        trailing: bool,
    },
    /// Text of a thought region (A9).
    Thought {
        /// The place in the message.
        span: Span,
        /// The text, tags included.
        text: String,
        /// Whether it takes back the events of its span: a closing mark without an opening one
        /// turns all the text, blocks and calls that were reported so far into a thought. Blocks
        /// are counted anew from here.
        takes_back: bool,
    },
    /// A block was opened. Its parts are uncertain before its [`Event::BlockClosed`].
    BlockOpened {
        /// Position among the message's blocks.
        block: usize,
        /// The dialect as far as known.
        dialect: Dialect,
        /// The start of the opening marker.
        at: usize,
    },
    /// The name of a call was read.
    CallOpened {
        /// Position of the block.
        block: usize,
        /// Position of the call in the block.
        call: usize,
        /// The name as written.
        name: String,
        /// The resolution of the name.
        tool: ToolState,
        /// The place of the name.
        span: Span,
    },
    /// A value has grown. The pieces joined are a prefix of the value's source text.
    ArgumentDelta {
        /// Position of the block.
        block: usize,
        /// Position of the call in the block; in TAM blocks, whose step may not be known yet, 0.
        call: usize,
        /// Position of the value in the call; in TAM blocks, of the field in the block.
        argument: usize,
        /// The parameter as written.
        name: String,
        /// The new piece, as written by the model.
        text: String,
    },
    /// A block is complete or was given up.
    BlockClosed {
        /// Position of the block.
        block: usize,
        /// The block with its problems.
        state: Box<Block>,
        /// Its calls, typed; [`Call::is_ready`] holds for each call that may run.
        calls: Vec<Arc<Call>>,
    },
    /// A remark.
    Diagnostic(Diagnostic),
}
