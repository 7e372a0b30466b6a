//! Paths into a state: dotted, or JSON Pointers (rule G302).

use std::fmt;

use json_schema::nearest_names;
use serde_json::{Map, Value};

use super::StateError;

/// The longest path, in bytes.
const MAX_PATH_BYTES: usize = 512;

/// A path into a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    written: String,
    keys: Vec<String>,
}

impl Path {
    /// Reads a path. A path that begins with `/` is a JSON Pointer, any other is dotted.
    ///
    /// # Errors
    /// A sentence that describes the problem.
    pub fn parse(written: &str) -> Result<Self, String> {
        if written.len() > MAX_PATH_BYTES {
            return Err(format!("is longer than {MAX_PATH_BYTES} bytes"));
        }
        let keys: Vec<String> = match written.strip_prefix('/') {
            Some(pointer) => {
                let plain = |key: &str| key.replace("~1", "/").replace("~0", "~");
                pointer.split('/').map(plain).collect()
            }
            None => written.split('.').map(str::to_owned).collect(),
        };
        if !written.starts_with('/') && keys.iter().any(String::is_empty) {
            return Err(
                "has an empty part; write it like `stock.moonmoss` or `/stock/moonmoss`".to_owned(),
            );
        }
        Ok(Self {
            written: written.to_owned(),
            keys,
        })
    }

    /// Returns the path as a JSON Pointer.
    pub fn pointer(&self) -> String {
        let escaped = |key: &String| format!("/{}", key.replace('~', "~0").replace('/', "~1"));
        self.keys.iter().map(escaped).collect()
    }

    /// Whether the path equals a pattern, or is below a pattern that ends with `.*` or `/*`.
    pub fn is_within(&self, pattern: &str) -> bool {
        let Ok(pattern) = Self::parse(pattern) else {
            return false;
        };
        match pattern.keys.split_last() {
            Some((last, above)) if last == "*" => {
                self.keys.len() > above.len() && self.keys.starts_with(above)
            }
            _ => self.keys == pattern.keys,
        }
    }

    /// Returns the value at the path.
    ///
    /// # Errors
    /// [`StateError::PathNotFound`] with the nearest keys.
    pub fn get<'s>(&self, state: &'s Value) -> Result<&'s Value, StateError> {
        let mut value = state;
        for key in &self.keys {
            value = child(value, key).ok_or_else(|| self.not_found(value, key))?;
        }
        Ok(value)
    }

    /// Puts a value at the path and returns the previous one; objects on the way are made.
    pub(super) fn put(&self, state: &mut Value, new: Value) -> Result<Option<Value>, StateError> {
        let Some((last, way)) = self.keys.split_last() else {
            return Ok(Some(std::mem::replace(state, new)));
        };
        let mut value = state;
        for key in way {
            value = match value {
                Value::Object(members) => {
                    let empty = || Value::Object(Map::new());
                    members.entry(key.clone()).or_insert_with(empty)
                }
                Value::Array(items) => {
                    let place = index(key, items.len());
                    let place = place
                        .ok_or_else(|| self.wrong_kind("an object or list with this place"))?;
                    &mut items[place]
                }
                _ => return Err(self.wrong_kind("an object")),
            };
        }
        match value {
            Value::Object(members) => Ok(members.insert(last.clone(), new)),
            Value::Array(items) => {
                let place = index(last, items.len());
                let place =
                    place.ok_or_else(|| self.wrong_kind("an object or list with this place"))?;
                Ok(Some(std::mem::replace(&mut items[place], new)))
            }
            _ => Err(self.wrong_kind("an object")),
        }
    }

    /// Removes the value at the path and returns it.
    pub(super) fn take(&self, state: &mut Value) -> Result<Value, StateError> {
        self.get(state)?;
        let Some((last, way)) = self.keys.split_last() else {
            return Err(self.wrong_kind("a part of a state"));
        };
        let way: String = Path {
            written: String::new(),
            keys: way.to_vec(),
        }
        .pointer();
        let taken = match state.pointer_mut(&way) {
            Some(Value::Object(members)) => members.remove(last),
            Some(Value::Array(items)) => index(last, items.len()).map(|place| items.remove(place)),
            _ => None,
        };
        taken.ok_or_else(|| self.wrong_kind("an object or list"))
    }

    pub(super) fn wrong_kind(&self, expected: &'static str) -> StateError {
        StateError::WrongKind {
            path: self.written.clone(),
            expected,
        }
    }

    fn not_found(&self, at: &Value, key: &str) -> StateError {
        let near = match at {
            Value::Object(members) => nearest_names(key, members.keys().map(String::as_str)),
            _ => Vec::new(),
        };
        StateError::PathNotFound {
            path: self.written.clone(),
            near,
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.written)
    }
}

fn child<'s>(value: &'s Value, key: &str) -> Option<&'s Value> {
    match value {
        Value::Object(members) => members.get(key),
        Value::Array(items) => items.get(index(key, items.len())?),
        _ => None,
    }
}

fn index(key: &str, length: usize) -> Option<usize> {
    let is_plain = key == "0" || !key.starts_with('0');
    let place = key
        .parse()
        .ok()
        .filter(|_| is_plain && key.bytes().all(|byte| byte.is_ascii_digit()));
    place.filter(|place| *place < length)
}
