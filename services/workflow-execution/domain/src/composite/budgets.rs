//! The bounds on a model's calls in one node.

use call_outcome::Violation;
use serde_json::{Map, Value, json};

use json_schema::pointer::join;

/// The setting of the budgets.
const MAX_TOOL_CALLS: &str = "maxToolCalls";

/// The largest budget.
const MOST: u64 = 1_000;

/// The bounds on a model's calls in one node (seed 003).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budgets {
    /// Requests with tools; one without tools follows them.
    pub iterations: u64,
    /// Calls of one answer.
    pub calls_per_response: u64,
    /// Calls of all answers.
    pub calls: u64,
}

impl Default for Budgets {
    fn default() -> Self {
        Self {
            iterations: 10,
            calls_per_response: 16,
            calls: 64,
        }
    }
}

impl Budgets {
    /// Reads `maxToolCalls`: a number for rounds and calls, or an object with each.
    ///
    /// # Errors
    /// All problems with it; pointers are relative to the node.
    pub fn read(config: &Map<String, Value>) -> Result<Self, Vec<Violation>> {
        let default = Self::default();
        let place = join("/configValues", MAX_TOOL_CALLS);
        let mut violations = Vec::new();
        let mut number = |place: String, value: &Value| {
            let number = value.as_u64().filter(|number| (1..=MOST).contains(number));
            if number.is_none() {
                let message = format!("expected a whole number from 1 to {MOST}");
                violations.push(Violation::new(place, "out_of_range", message));
            }
            number.unwrap_or(1)
        };
        let read = match config.get(MAX_TOOL_CALLS) {
            None | Some(Value::Null) => default,
            Some(Value::Object(given)) => {
                let mut read = default;
                for (key, value) in given {
                    let budget = match key.as_str() {
                        "iterations" => &mut read.iterations,
                        "callsPerResponse" => &mut read.calls_per_response,
                        "calls" => &mut read.calls,
                        _ => {
                            number(join(&place, key), &Value::Null);
                            continue;
                        }
                    };
                    *budget = number(join(&place, key), value);
                }
                read
            }
            Some(given) => {
                let most = number(place.clone(), given);
                Self {
                    iterations: most,
                    calls: most,
                    ..default
                }
            }
        };
        match violations.is_empty() {
            true => Ok(read),
            false => Err(violations),
        }
    }

    /// Writes the budgets as the object that [`Self::read`] reads.
    pub fn to_json(self) -> Value {
        json!({"iterations": self.iterations, "callsPerResponse": self.calls_per_response, "calls": self.calls})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(given: Value) -> Result<Budgets, Vec<String>> {
        let config = Map::from_iter([(MAX_TOOL_CALLS.to_owned(), given)]);
        Budgets::read(&config).map_err(|wrong| {
            wrong
                .into_iter()
                .map(|violation| violation.pointer)
                .collect()
        })
    }

    #[test]
    fn a_number_is_for_rounds_and_calls() {
        let default = Budgets::default();
        assert_eq!(read(Value::Null), Ok(default));
        let three = Budgets {
            iterations: 3,
            calls: 3,
            ..default
        };
        assert_eq!(read(json!(3)), Ok(three));
        let some = Budgets {
            calls: 2,
            ..default
        };
        assert_eq!(read(json!({"calls": 2})), Ok(some));
        assert_eq!(read(some.to_json()), Ok(some));
    }

    #[test]
    fn what_is_no_budget_is_named() {
        let place = |rest: &str| format!("/configValues/maxToolCalls{rest}");
        assert_eq!(read(json!(0)), Err(vec![place("")]));
        assert_eq!(read(json!("10")), Err(vec![place("")]));
        let wrong = json!({"calls": 1.5, "rounds": 3});
        assert_eq!(read(wrong), Err(vec![place("/calls"), place("/rounds")]));
    }
}
