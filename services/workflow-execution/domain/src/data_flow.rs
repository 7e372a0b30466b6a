//! The types that flow along edges.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use serde_json::{Map, Number, Value};
use smallvec::SmallVec;

/// The null that all absent values share.
pub static NULL: LazyLock<Arc<Value>> = LazyLock::new(|| Arc::new(Value::Null));

/// A value for each of some slots; none where it is absent. Nodes have few slots, so that most
/// lists need no memory of their own.
pub type Values = SmallVec<[Option<Arc<Value>>; 4]>;

/// A value that a node reads: an output or a preset unchanged, or a value made of it.
pub type Input<'a> = Cow<'a, Arc<Value>>;

/// A value for each input of a node; none where it is absent.
pub type Inputs<'a> = SmallVec<[Option<Input<'a>>; 4]>;

/// The type of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DataFlow {
    /// Text.
    String,
    /// A whole number.
    Integer,
    /// Any number.
    Float,
    /// True or false.
    Boolean,
    /// A JSON object.
    Object,
    /// A JSON array.
    Array,
    /// Bytes as base64 text, or the reference of a resource.
    Binary,
    /// Any value.
    Wildcard,
    /// Any value; an editor adopts the type of the connected slot.
    ConvertibleAny,
}

/// A value that does not fit its slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The type that the slot accepts, in the words of JSON.
    pub expected: &'static str,
    /// The type of the value, in the words of JSON.
    pub received: &'static str,
}

impl DataFlow {
    /// All types.
    pub const ALL: [DataFlow; 9] = [
        DataFlow::String,
        DataFlow::Integer,
        DataFlow::Float,
        DataFlow::Boolean,
        DataFlow::Object,
        DataFlow::Array,
        DataFlow::Binary,
        DataFlow::Wildcard,
        DataFlow::ConvertibleAny,
    ];

    /// Returns the name that files and the wire use.
    pub fn name(self) -> &'static str {
        match self {
            DataFlow::String => "STRING",
            DataFlow::Integer => "INTEGER",
            DataFlow::Float => "FLOAT",
            DataFlow::Boolean => "BOOLEAN",
            DataFlow::Object => "OBJECT",
            DataFlow::Array => "ARRAY",
            DataFlow::Binary => "BINARY",
            DataFlow::Wildcard => "WILDCARD",
            DataFlow::ConvertibleAny => "CONVERTIBLE_ANY",
        }
    }

    /// Finds a type by its name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|data_flow| data_flow.name() == name)
    }

    /// Returns whether every value fits.
    pub fn is_any(self) -> bool {
        matches!(self, DataFlow::Wildcard | DataFlow::ConvertibleAny)
    }

    /// Returns whether `value` is of this type without a conversion.
    pub fn holds(self, value: &Value) -> bool {
        match self {
            DataFlow::String | DataFlow::Binary => value.is_string(),
            DataFlow::Integer => matches!(value, Value::Number(number) if is_whole(number)),
            DataFlow::Float => value.is_number(),
            DataFlow::Boolean => value.is_boolean(),
            DataFlow::Object => value.is_object(),
            DataFlow::Array => value.is_array(),
            DataFlow::Wildcard | DataFlow::ConvertibleAny => true,
        }
    }

    /// Converts a value that arrived along an edge: numbers and truth values become text where text
    /// is expected, every other value must be of the type already.
    ///
    /// # Errors
    /// [`Mismatch`] names the expected and the received type.
    pub fn fit(self, value: &Arc<Value>) -> Result<Input<'_>, Mismatch> {
        if self.holds(value) {
            return Ok(Cow::Borrowed(value));
        }
        match (self, value.as_ref()) {
            (DataFlow::String, Value::Number(number)) => {
                Ok(Cow::Owned(Arc::new(Value::String(number.to_string()))))
            }
            (DataFlow::String, Value::Bool(truth)) => {
                Ok(Cow::Owned(Arc::new(Value::String(truth.to_string()))))
            }
            (_, other) => Err(Mismatch {
                expected: self.json_name(),
                received: kind_of(other),
            }),
        }
    }

    /// Returns whether values of this type may flow into a slot of the type `target`.
    pub fn flows_into(self, target: DataFlow) -> bool {
        self == target
            || self.is_any()
            || target.is_any()
            || (self == DataFlow::Integer && target == DataFlow::Float)
            || (matches!(
                self,
                DataFlow::Integer | DataFlow::Float | DataFlow::Boolean
            ) && target == DataFlow::String)
    }

    /// Returns the empty value of this type.
    pub fn empty(self) -> Value {
        match self {
            DataFlow::String | DataFlow::Binary => Value::String(String::new()),
            DataFlow::Integer | DataFlow::Float => Value::Number(Number::from(0)),
            DataFlow::Boolean => Value::Bool(false),
            DataFlow::Object => Value::Object(Map::new()),
            DataFlow::Array => Value::Array(Vec::new()),
            DataFlow::Wildcard | DataFlow::ConvertibleAny => Value::Null,
        }
    }

    fn json_name(self) -> &'static str {
        match self {
            DataFlow::String | DataFlow::Binary => "string",
            DataFlow::Integer => "integer",
            DataFlow::Float => "number",
            DataFlow::Boolean => "boolean",
            DataFlow::Object => "object",
            DataFlow::Array => "array",
            DataFlow::Wildcard | DataFlow::ConvertibleAny => "any value",
        }
    }
}

/// Names the JSON type of a value.
pub fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if is_whole(number) => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Returns whether a number has no fraction, also beyond 64 bits: `3.0` and `1e2` are whole.
fn is_whole(number: &Number) -> bool {
    if number.is_i64() || number.is_u64() {
        return true;
    }
    let text = number.as_str();
    let digits = text.strip_prefix('-').unwrap_or(text);
    digits.bytes().all(|byte| byte.is_ascii_digit())
        || number
            .as_f64()
            .is_some_and(|float| float.is_finite() && float.fract() == 0.0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(
        data_flow: DataFlow,
        value: Value,
        expected: Result<Value, (&'static str, &'static str)>,
    ) {
        let given = Arc::new(value.clone());
        let fitted = data_flow.fit(&given);
        let fitted = fitted
            .map(|fitted| Arc::unwrap_or_clone(fitted.into_owned()))
            .map_err(|error| (error.expected, error.received));
        assert_eq!(fitted, expected, "{data_flow:?} {value}");
    }

    #[test]
    fn numbers_and_truth_values_become_text_where_text_is_wanted() {
        check(DataFlow::String, json!(3), Ok(json!("3")));
        check(DataFlow::String, json!(true), Ok(json!("true")));
        check(DataFlow::String, json!({}), Err(("string", "object")));
        check(DataFlow::Float, json!(3), Ok(json!(3)));
        check(DataFlow::Float, json!("3"), Err(("number", "string")));
        check(DataFlow::Integer, json!(3.5), Err(("integer", "number")));
        check(DataFlow::Integer, json!(3.0), Ok(json!(3.0)));
        check(DataFlow::Wildcard, json!(null), Ok(json!(null)));
    }

    #[test]
    fn a_whole_number_may_have_any_length() {
        let long: Value = serde_json::from_str("123456789012345678901234567890").unwrap();
        assert!(DataFlow::Integer.holds(&long));
        check(
            DataFlow::String,
            long,
            Ok(json!("123456789012345678901234567890")),
        );
    }

    #[test]
    fn edges_widen_and_never_narrow() {
        assert!(DataFlow::Integer.flows_into(DataFlow::Float));
        assert!(!DataFlow::Float.flows_into(DataFlow::Integer));
        assert!(DataFlow::Boolean.flows_into(DataFlow::String));
        assert!(!DataFlow::String.flows_into(DataFlow::Boolean));
        assert!(!DataFlow::Object.flows_into(DataFlow::String));
        for data_flow in DataFlow::ALL {
            assert!(
                data_flow.flows_into(DataFlow::Wildcard)
                    && DataFlow::ConvertibleAny.flows_into(data_flow)
            );
            assert_eq!(DataFlow::from_name(data_flow.name()), Some(data_flow));
            assert!(data_flow.holds(&data_flow.empty()));
        }
    }
}
