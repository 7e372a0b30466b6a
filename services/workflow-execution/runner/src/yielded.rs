//! The values that a script yields: each a line of JSON on its standard output.

use call_outcome::{Category, Failure};
use serde_json::Value;

use crate::wire;
use workflow_domain::data_flow::{DataFlow, kind_of};
use workflow_domain::limits::MAX_VALUE_BYTES;
use workflow_domain::stream_value::to_lines;

/// The values that a script has yielded.
#[derive(Debug)]
pub(super) struct Yielded {
    data_flow: DataFlow,
    values: Vec<Value>,
    /// The line that has not ended yet.
    open: String,
    bytes: usize,
}

impl Yielded {
    /// Starts without values.
    pub(super) fn new(data_flow: DataFlow) -> Self {
        Self {
            data_flow,
            values: Vec::new(),
            open: String::new(),
            bytes: 0,
        }
    }

    /// Appends text, and returns the values that it completes, each a line.
    ///
    /// # Errors
    /// A line is not a value of the type, or the values are too large to keep.
    pub(super) fn push(&mut self, text: &str) -> Result<String, Failure> {
        self.bytes += text.len();
        if self.bytes > MAX_VALUE_BYTES {
            let message = format!(
                "the script yielded more than {MAX_VALUE_BYTES} bytes, the most that are kept"
            );
            return Err(Failure::limit("value_too_large", message));
        }
        self.open.push_str(text);
        let Some(end) = self.open.rfind('\n') else {
            return Ok(String::new());
        };
        let rest = self.open.split_off(end + 1);
        let ended = std::mem::replace(&mut self.open, rest);
        self.read(&ended)
    }

    /// Reads the last line, which need not be ended.
    ///
    /// # Errors
    /// The line is not a value of the type.
    pub(super) fn finish(&mut self) -> Result<String, Failure> {
        let last = std::mem::take(&mut self.open);
        self.read(&last)
    }

    /// Returns all values.
    pub(super) fn into_values(self) -> Value {
        Value::Array(self.values)
    }

    fn read(&mut self, lines: &str) -> Result<String, Failure> {
        let before = self.values.len();
        for line in lines.lines().filter(|line| !line.trim().is_empty()) {
            let value = wire::read_value(line).map_err(|problem| self.malformed(&problem))?;
            if !self.data_flow.holds(&value) {
                let (wanted, found) = (self.data_flow.name(), kind_of(&value));
                return Err(self.malformed(&format!("expected {wanted}, found {found}")));
            }
            self.values.push(value);
        }
        Ok(to_lines(&self.values[before..]))
    }

    fn malformed(&self, problem: &str) -> Failure {
        let number = self.values.len() + 1;
        let message = format!("value {number} that the script yielded is not usable: {problem}");
        Failure::new(Category::Runtime, "value_malformed", message)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_complete_with_their_line() {
        let mut yielded = Yielded::new(DataFlow::Object);
        let lines = ["{\"n\"", ": 1}", "\n\n{}\n{\"m\":", "2}"].map(|text| yielded.push(text));
        let lines = lines.map(Result::unwrap);
        assert_eq!(lines, ["", "", "{\"n\":1}\n{}\n", ""]);
        assert_eq!(yielded.finish().unwrap(), "{\"m\":2}\n");
        assert_eq!(yielded.into_values(), json!([{"n": 1}, {}, {"m": 2}]));
    }

    #[test]
    fn what_is_no_value_of_the_type_is_refused() {
        for (data_flow, text, code) in [
            (DataFlow::Integer, "1\n2.5\n", "value_malformed"),
            (DataFlow::Wildcard, "print\n", "value_malformed"),
            (
                DataFlow::Wildcard,
                &"1".repeat(MAX_VALUE_BYTES + 1),
                "value_too_large",
            ),
        ] {
            let refused = Yielded::new(data_flow).push(text).unwrap_err();
            assert_eq!(refused.code, code);
        }
    }
}
