//! Protobuf messages as JSON and back, by descriptor.
//!
//! - `read`: JSON to message, with all values that do not fit.
//! - `write`: message to JSON.
//! - `place`: the place of a value that does not fit, in a message.

mod place;
mod read;
mod write;

pub use place::field_path;
use read::has_own_form;
pub use read::{to_message, to_message_without_unknown};
pub use write::{WriteError, to_text, to_value};

#[cfg(test)]
mod tests;
