//! Private states of agents and world states of scenes: JSON objects that tools read and change (section 3
//! of the rules for agents).

mod patch;
mod path;

use json_schema::{Schema, Violation};
use serde_json::{Map, Number, Value};

pub use patch::from_patch;
pub use path::Path;

/// The largest private state, in bytes of JSON (rule G304).
pub const MAX_PRIVATE_BYTES: usize = 256 << 10;
/// The largest world state, in bytes of JSON (rule G304).
pub const MAX_WORLD_BYTES: usize = 1 << 20;
/// The largest value of one change, in bytes of JSON (rule G304).
pub const MAX_VALUE_BYTES: usize = 64 << 10;
/// The deepest nesting of a state (rule G304).
pub const MAX_DEPTH: usize = 32;

/// One change (rule G302).
#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    /// Puts a value at a path; objects on the way are made.
    Set(Path, Value),
    /// Merges an object into the object at a path, which is made if it is missing.
    Merge(Path, Value),
    /// Removes the value at a path.
    Remove(Path),
    /// Adds a value to the end of a list; the list is made if it is missing.
    Append(Path, Value),
    /// Adds a number to a number; a missing number counts as zero.
    Increment(Path, Number),
    /// Fails unless a path has this value.
    Test(Path, Value),
}

impl Operation {
    /// Returns the path that it changes; none for a test.
    pub fn changes(&self) -> Option<&Path> {
        match self {
            Self::Set(path, _)
            | Self::Merge(path, _)
            | Self::Remove(path)
            | Self::Append(path, _)
            | Self::Increment(path, _) => Some(path),
            Self::Test(..) => None,
        }
    }
}

/// A state after its changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Changed {
    /// The state.
    pub state: Value,
    /// The paths that were changed, as JSON Pointers, in order.
    pub paths: Vec<String>,
    /// The value at the path of the last change before it; none if there was none.
    pub previous: Option<Value>,
}

/// The reason for not changing or reading a state.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum StateError {
    /// A path without a value.
    #[error("there is no value at `{path}`{}", near_words(.near))]
    PathNotFound {
        /// The path, as it was written.
        path: String,
        /// Existing keys that are almost the same.
        near: Vec<String>,
    },
    /// A value at a path of another kind than the change needs.
    #[error("`{path}` is not {expected}")]
    WrongKind {
        /// The path, as it was written.
        path: String,
        /// The kind that is needed.
        expected: &'static str,
    },
    /// A test that did not hold.
    #[error("`{path}` does not have the expected value")]
    TestFailed {
        /// The path, as it was written.
        path: String,
    },
    /// A state or a value that would be too large.
    #[error("the {what} would be {bytes} bytes, but at most {most} are allowed")]
    TooLarge {
        /// The part that is too large.
        what: &'static str,
        /// Its size.
        bytes: usize,
        /// The most.
        most: usize,
    },
    /// A state that would be nested too deep.
    #[error("the state would be nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// A state that would break its schema; every violation.
    #[error("the state would break its schema: {}", violation_words(.0))]
    BreaksSchema(Vec<Violation>),
}

fn near_words(near: &[String]) -> String {
    match near {
        [] => String::new(),
        near => format!("; near it are {}", near.join(", ")),
    }
}

fn violation_words(violations: &[Violation]) -> String {
    let words = violations
        .iter()
        .map(|found| format!("{}: {}", found.pointer, found.message));
    words.collect::<Vec<_>>().join("; ")
}

/// Makes the first state from the defaults of a schema and the values of a document (rule G106).
///
/// # Errors
/// A state that breaks the schema or has more than `most` bytes.
pub fn first(schema: Option<&Schema>, values: &Value, most: usize) -> Result<Value, StateError> {
    let mut state = Value::Object(Map::new());
    // Once for the defaults that the values override in part, once for the defaults inside the
    // values.
    fill(schema, &mut state);
    merge(&mut state, values);
    fill(schema, &mut state);
    check(schema, &state, most)?;
    Ok(state)
}

fn fill(schema: Option<&Schema>, state: &mut Value) {
    if let Some(Err(error)) = schema.map(|schema| schema.apply_defaults(state)) {
        tracing::warn!(%error, "defaults of a state's schema are left out");
    }
}

/// Merges one value over another: objects merge by key, everything else replaces (rule G106).
pub fn merge(below: &mut Value, above: &Value) {
    match (below, above) {
        (Value::Object(below), Value::Object(above)) => {
            for (key, value) in above {
                merge(below.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (below, above) => *below = above.clone(),
    }
}

/// Applies all changes or none, to at most `most` bytes.
///
/// # Errors
/// The first change that cannot be made, or the rule that the state would break.
pub fn change(
    state: &Value,
    operations: &[Operation],
    schema: Option<&Schema>,
    most: usize,
) -> Result<Changed, StateError> {
    let mut changed = Changed {
        state: state.clone(),
        paths: Vec::new(),
        previous: None,
    };
    for operation in operations {
        apply_one(operation, &mut changed)?;
    }
    check(schema, &changed.state, most)?;
    Ok(changed)
}

fn apply_one(operation: &Operation, changed: &mut Changed) -> Result<(), StateError> {
    let state = &mut changed.state;
    let (path, previous) = match operation {
        Operation::Test(path, expected) => {
            return match path.get(state)? == expected {
                true => Ok(()),
                false => Err(StateError::TestFailed {
                    path: path.to_string(),
                }),
            };
        }
        Operation::Set(path, value) => {
            check_value(value)?;
            (path, path.put(state, value.clone())?)
        }
        Operation::Merge(path, over) => {
            let before = path.get(state).ok().cloned();
            let mut merged = before.unwrap_or_else(|| Value::Object(Map::new()));
            merge(&mut merged, over);
            check_value(&merged)?;
            (path, path.put(state, merged)?)
        }
        Operation::Remove(path) => (path, Some(path.take(state)?)),
        Operation::Append(path, value) => {
            check_value(value)?;
            let before = path.get(state).ok().cloned();
            let mut list = match before.clone() {
                None => Vec::new(),
                Some(Value::Array(list)) => list,
                Some(_) => return Err(path.wrong_kind("a list")),
            };
            list.push(value.clone());
            path.put(state, Value::Array(list))?;
            (path, before)
        }
        Operation::Increment(path, by) => {
            let before = path.get(state).ok().cloned();
            let sum = match &before {
                None => Value::Number(by.clone()),
                Some(Value::Number(number)) => add(number, by)
                    .ok_or_else(|| path.wrong_kind("a number that can grow so far"))?,
                Some(_) => return Err(path.wrong_kind("a number")),
            };
            path.put(state, sum)?;
            (path, before)
        }
    };
    changed.paths.push(path.pointer());
    changed.previous = previous;
    Ok(())
}

/// Adds whole numbers exactly, others as doubles.
fn add(number: &Number, by: &Number) -> Option<Value> {
    if let (Some(number), Some(by)) = (number.as_i64(), by.as_i64()) {
        return number.checked_add(by).map(Value::from);
    }
    let sum = number.as_f64()? + by.as_f64()?;
    Number::from_f64(sum).map(Value::Number)
}

fn check_value(value: &Value) -> Result<(), StateError> {
    at_most("value", json_schema::text_bytes(value), MAX_VALUE_BYTES)
}

fn at_most(what: &'static str, bytes: usize, most: usize) -> Result<(), StateError> {
    match bytes > most {
        true => Err(StateError::TooLarge { what, bytes, most }),
        false => Ok(()),
    }
}

fn check(schema: Option<&Schema>, state: &Value, most: usize) -> Result<(), StateError> {
    at_most("state", json_schema::text_bytes(state), most)?;
    if depth(state) > MAX_DEPTH {
        return Err(StateError::TooDeep);
    }
    let violations = schema.map_or_else(Vec::new, |schema| schema.validate(state));
    match violations.is_empty() {
        true => Ok(()),
        false => Err(StateError::BreaksSchema(violations)),
    }
}

fn depth(value: &Value) -> usize {
    let below = match value {
        Value::Array(items) => items.iter().map(depth).max(),
        Value::Object(members) => members.values().map(depth).max(),
        _ => return 0,
    };
    1 + below.unwrap_or_default()
}

#[cfg(test)]
mod tests;
