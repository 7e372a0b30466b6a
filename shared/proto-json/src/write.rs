//! Message to JSON.

use prost_reflect::{DynamicMessage, SerializeOptions};
use serde_json::Value;

/// A message cannot be written as JSON, such as one with a time beyond the year 9999.
#[derive(Debug, thiserror::Error)]
#[error("the message cannot be written as JSON")]
pub struct WriteError(#[from] serde_json::Error);

/// Makes JSON that shows every field, with 64-bit integers as numbers: our JSON keeps every digit.
///
/// # Errors
/// [`WriteError`] for values that JSON cannot express.
pub fn to_value(message: &DynamicMessage) -> Result<Value, WriteError> {
    let options = SerializeOptions::new()
        .stringify_64_bit_integers(false)
        .skip_default_fields(false);
    Ok(message.serialize_with_options(serde_json::value::Serializer, &options)?)
}

/// Makes proto3 JSON as it is specified: 64-bit integers are strings, and default values are left
/// out.
///
/// # Errors
/// [`WriteError`] for values that JSON cannot express.
pub fn to_text(message: &DynamicMessage) -> Result<String, WriteError> {
    Ok(serde_json::to_string(message)?)
}
