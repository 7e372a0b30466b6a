//! The arguments of a call as one value.

use std::{ops::Deref, sync::Arc};

use serde_json::Value;

/// The arguments of a call: the value and its text, which is made once. Clone, cheap.
#[derive(Clone, Debug)]
pub struct Arguments {
    value: Arc<Value>,
    text: Arc<str>,
}

impl Arguments {
    /// Takes the text of a value that was printed by this program.
    pub fn with_text(value: Value, text: &str) -> Self {
        let (value, text) = (Arc::new(value), text.into());
        Self { value, text }
    }

    /// Returns the value as compact JSON text.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl From<Value> for Arguments {
    fn from(value: Value) -> Self {
        let text = value.to_string();
        Self::with_text(value, &text)
    }
}

impl Deref for Arguments {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.value
    }
}
