//! The size of a value as text.

use std::io;

use serde_json::Value;

/// Counts the bytes written to it.
#[derive(Default)]
struct Counter(usize);

impl io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the number of bytes that a value has as compact JSON text, without making the text.
pub fn text_bytes(value: &Value) -> usize {
    let mut counter = Counter::default();
    // A counter accepts all bytes, and every value has a text.
    let _ = serde_json::to_writer(&mut counter, value);
    counter.0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    proptest! {
        #[test]
        fn the_size_is_that_of_the_text(text in any::<String>(), number in any::<f64>(), flag in any::<bool>()) {
            let value = json!({ text.clone(): [number, flag, null, { "a": text }] });
            prop_assert_eq!(text_bytes(&value), value.to_string().len());
        }
    }
}
