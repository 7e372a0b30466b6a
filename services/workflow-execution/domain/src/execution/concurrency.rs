//! The settings that make a node wait before it starts (rules W50 and W51).

use call_outcome::{Failure, Violation};
use serde_json::{Map, Value};

use super::ExecutionReader;
use json_schema::pointer::join;

/// The highest priority of a run or node.
pub const MAX_PRIORITY: u32 = 9;

/// The longest key, in bytes.
pub const MAX_KEY_BYTES: usize = 256;

/// The most holders of a key.
const MAX_HOLDERS: u64 = 10_000;

/// The variables that the expression sees.
const VARIABLES: &[&str] = &["inputs"];

/// The bound on nodes with the same key that run at once, whatever their runs.
#[derive(Clone, Debug, PartialEq)]
pub struct ConcurrencyKey {
    /// The expression in CEL whose value is the key.
    source: String,
    /// The most nodes with the same key that run at once.
    pub limit: usize,
}

impl ConcurrencyKey {
    /// Returns the key of a node with these inputs by name.
    ///
    /// # Errors
    /// The value of the expression is no text, or a text that is no key.
    pub fn evaluate(&self, inputs: &Value) -> Result<String, Failure> {
        let failed = |problem: &str| {
            let message = format!("`concurrencyKey` has no result: {problem}");
            Failure::invalid("condition_failed", message)
        };
        match cel_guard::evaluate(&self.source, &[("inputs", inputs)]) {
            Ok(Value::String(key)) if (1..=MAX_KEY_BYTES).contains(&key.len()) => Ok(key),
            Ok(_) => Err(failed(&format!(
                "expected a text of 1 to {MAX_KEY_BYTES} bytes"
            ))),
            Err(problem) => Err(failed(&problem)),
        }
    }
}

impl ExecutionReader {
    pub(super) fn concurrency(
        &mut self,
        settings: &Map<String, Value>,
        pointer: &str,
    ) -> Option<ConcurrencyKey> {
        let limit = settings.get("concurrencyLimit").map(|limit| {
            let limit = limit
                .as_u64()
                .filter(|limit| (1..=MAX_HOLDERS).contains(limit));
            if limit.is_none() {
                let expected = format!("a whole number from 1 to {MAX_HOLDERS}");
                self.out_of_range(join(pointer, "concurrencyLimit"), &expected);
            }
            limit.unwrap_or(1)
        });
        let place = join(pointer, "concurrencyKey");
        let Some(source) = settings.get("concurrencyKey") else {
            if limit.is_some() {
                let message =
                    "there is no `concurrencyKey` whose holders `concurrencyLimit` bounds";
                self.violations
                    .push(Violation::new(place, "missing", message));
            }
            return None;
        };
        let Some(source) = source.as_str().filter(|source| !source.is_empty()) else {
            self.out_of_range(place, "an expression in CEL that gives a text");
            return None;
        };
        if let Err(problem) = cel_guard::check(source, VARIABLES) {
            self.violations
                .push(Violation::new(place, "invalid_expression", problem));
            return None;
        }
        Some(ConcurrencyKey {
            source: source.to_owned(),
            limit: limit.unwrap_or(1) as usize,
        })
    }

    pub(super) fn priority(&mut self, settings: &Map<String, Value>, pointer: &str) -> Option<u32> {
        let given = settings.get("priority")?.as_u64();
        let priority = given.filter(|priority| *priority <= u64::from(MAX_PRIORITY));
        if priority.is_none() {
            let expected = format!("a whole number from 0 to {MAX_PRIORITY}");
            self.out_of_range(join(pointer, "priority"), &expected);
        }
        priority.map(|priority| priority as u32)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn key(source: &str) -> ConcurrencyKey {
        ConcurrencyKey {
            source: source.to_owned(),
            limit: 1,
        }
    }

    #[test]
    fn w50_a_key_is_a_text_that_the_inputs_give() {
        let inputs = json!({"account": "ada", "number": 7});
        let found = key("'account ' + inputs.account").evaluate(&inputs);
        assert_eq!(found.unwrap(), "account ada");
        for wrong in ["inputs.number", "inputs.missing", "''"] {
            let failure = key(wrong).evaluate(&inputs).unwrap_err();
            assert_eq!(failure.code, "condition_failed", "{wrong}");
        }
    }
}
