//! The search for the end of a JSON value without parsing it, and the parser that refuses duplicate
//! keys.

use serde::Deserialize;
use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::{Feed, Look};

mod spelled;

pub use spelled::{Slip, parse_spelled};

/// A resumable search for the end of an object or array.
#[derive(Debug, Clone, Default)]
pub struct JsonEnd {
    /// The end of the text that was examined.
    pub pos: usize,
    depth: usize,
    in_string: bool,
}

impl JsonEnd {
    /// Starts at a position, where the value begins.
    pub fn at(pos: usize) -> Self {
        Self {
            pos,
            ..Self::default()
        }
    }

    /// First position after the value; *no* if the text ends inside it.
    pub fn find(&mut self, feed: &Feed<'_>) -> Look<usize> {
        let bytes = feed.bytes();
        let before = self.pos;
        while self.pos < bytes.len() {
            let byte = bytes[self.pos];
            if self.in_string {
                match byte {
                    b'\\' if self.pos + 1 == bytes.len() => break,
                    b'\\' => self.pos += 1,
                    b'"' => self.in_string = false,
                    _ => {}
                }
            } else {
                match byte {
                    b'"' => self.in_string = true,
                    b'{' | b'[' => self.depth += 1,
                    b'}' | b']' => {
                        self.depth = self.depth.saturating_sub(1);
                        if self.depth == 0 {
                            self.pos += 1;
                            feed.count(self.pos - before);
                            return Look::Yes(self.pos);
                        }
                    }
                    _ => {}
                }
            }
            self.pos += 1;
        }
        feed.count(self.pos.saturating_sub(before));
        feed.ended()
    }
}

/// Parses JSON; a duplicate key is an error instead of a silent loss (X5).
pub fn parse(text: &str) -> Result<Value, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = Strict.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

struct Strict;

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

/// The key under which serde_json hands over a number of any size.
const NUMBER_TOKEN: &str = "$serde_json::private::Number";

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element_seed(Strict)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            if key == NUMBER_TOKEN && map.is_empty() {
                let digits: String = access.next_value()?;
                let number = serde_json::Number::deserialize(serde::de::value::MapDeserializer::<
                    _,
                    A::Error,
                >::new(
                    std::iter::once((NUMBER_TOKEN, digits)),
                ));
                return Ok(Value::Number(number?));
            }
            let value = access.next_value_seed(Strict)?;
            if map.contains_key(&key) {
                return Err(A::Error::custom(format!(
                    "duplicate key '{}'",
                    call_catalogue::cut(&key)
                )));
            }
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_every_digit_and_duplicate_keys_are_refused() {
        let value = parse(r#"{"a": 9007199254740993, "b": 1.10, "c": 123456789012345678901234567890, "d": [-0, 1e5]}"#).unwrap();
        assert_eq!(
            value.to_string(),
            r#"{"a":9007199254740993,"b":1.10,"c":123456789012345678901234567890,"d":[-0,1e+5]}"#
        );
        assert!(
            parse(r#"{"a":1,"b":{"c":1,"c":2}}"#)
                .unwrap_err()
                .to_string()
                .contains("duplicate key 'c'")
        );
        assert!(parse("{} x").is_err());
    }
}
