//! The limits of requests, checked before a handler sees them.
//!
//! A protobuf decoder accepts any number and any text. The limits of each field are declared in the
//! proto files as options of `buf.validate`; the build makes tables of them, so that no method can
//! forget to check. The walk reads the bytes of the request once and allocates only to report.

use std::collections::HashMap;
use std::fmt::{self, Display, Formatter};

use prost::Message as _;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

include!(concat!(env!("OUT_DIR"), "/rules.rs"));

/// The most violations that are reported.
const MAX_VIOLATIONS: usize = 20;

/// The most fields of a message with rules; the build holds every message to it.
const MAX_FIELDS: usize = 32;

const NANOS_PER_SECOND: i128 = 1_000_000_000;

/// A message with rules, or with a field that leads to such a message.
#[derive(Debug)]
pub(super) struct Message {
    /// The fields with rules, by number.
    fields: &'static [Field],
    oneofs: &'static [Oneof],
}

/// A one-of of which one field must be set.
#[derive(Debug)]
struct Oneof {
    name: &'static str,
    numbers: &'static [u32],
    /// The fields to set, in words.
    choice: &'static str,
}

#[derive(Debug)]
struct Field {
    number: u32,
    name: &'static str,
    /// Whether the field is repeated or a map.
    many: bool,
    /// The least and the most entries of a repeated field or map.
    entries: (u32, u32),
    /// Whether a missing field has no value to check.
    optional: bool,
    required: bool,
    /// The check of each value.
    check: Check,
}

#[derive(Debug)]
enum Check {
    Nothing,
    /// A number of bytes.
    Bytes(u64, u64),
    /// One of these numbers.
    Enum(&'static [i32]),
    Signed(i128, i128),
    Unsigned(i128, i128),
    Double(f64, f64),
    /// Nanoseconds.
    Duration(i128, i128),
    /// The index of the message's table.
    Message(usize),
}

/// Returns the rules of a request.
pub(super) fn of_request(name: &str) -> Option<&'static Message> {
    let place = REQUESTS.binary_search_by_key(&name, |(request, _)| request);
    place.ok().map(|place| &MESSAGES[REQUESTS[place].1])
}

/// Refuses a request that breaks rules, and names each of them.
pub(super) fn check(message: &Message, bytes: &[u8]) -> Result<(), Status> {
    let mut found = Violations(Vec::new());
    walk(message, bytes, None, &mut found);
    let Some((field, problem)) = found.0.first() else {
        return Ok(());
    };
    let text = format!("the request is not valid: {field}: {problem}");
    let mut details =
        ErrorDetails::with_error_info("INVALID_FIELDS", crate::ERROR_DOMAIN, HashMap::new());
    for (field, problem) in found.0 {
        details.add_bad_request_violation(field, problem);
    }
    Err(Status::with_error_details(
        Code::InvalidArgument,
        text,
        details,
    ))
}

struct Violations(Vec<(String, String)>);

impl Violations {
    fn add(&mut self, path: &Path<'_>, problem: String) {
        if self.0.len() < MAX_VIOLATIONS {
            self.0.push((path.to_string(), problem));
        }
    }
}

/// The path of a field, written only for a violation.
#[derive(Clone, Copy)]
struct Path<'a> {
    above: Option<&'a Path<'a>>,
    name: &'a str,
    index: Option<u32>,
}

impl Display for Path<'_> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        if let Some(above) = self.above {
            write!(formatter, "{above}.")?;
        }
        formatter.write_str(self.name)?;
        match self.index {
            Some(index) => write!(formatter, "[{index}]"),
            None => Ok(()),
        }
    }
}

/// Adds the violations in a message; malformed bytes are left to the decoder.
fn walk(
    message: &Message,
    mut bytes: &[u8],
    above: Option<&Path<'_>>,
    found: &mut Violations,
) -> Option<()> {
    let mut seen = [0_u32; MAX_FIELDS];
    while !bytes.is_empty() && found.0.len() < MAX_VIOLATIONS {
        let (number, wire) = decode_key(&mut bytes).ok()?;
        let place = message.fields.binary_search_by_key(&number, |f| f.number);
        let Ok(place) = place else {
            skip_field(wire, number, &mut bytes, DecodeContext::default()).ok()?;
            continue;
        };
        let field = &message.fields[place];
        let path = Path {
            above,
            name: field.name,
            index: field.many.then_some(seen[place]),
        };
        seen[place] = seen[place].saturating_add(1);
        let problem = match wire {
            WireType::Varint => field.check.number(decode_varint(&mut bytes).ok()?),
            WireType::LengthDelimited => {
                let length = usize::try_from(decode_varint(&mut bytes).ok()?).ok()?;
                let (value, rest) = bytes.split_at_checked(length)?;
                bytes = rest;
                match field.check {
                    Check::Message(place) => {
                        walk(&MESSAGES[place], value, Some(&path), found)?;
                        None
                    }
                    ref check => check.bytes(value),
                }
            }
            WireType::SixtyFourBit => {
                let (value, rest) = bytes.split_first_chunk()?;
                bytes = rest;
                field.check.double(f64::from_le_bytes(*value))
            }
            _ => {
                skip_field(wire, number, &mut bytes, DecodeContext::default()).ok()?;
                None
            }
        };
        if let Some(problem) = problem {
            found.add(&path, problem);
        }
    }
    missing(message, &seen, above, found);
    Some(())
}

/// Adds the violations of the numbers of fields: missing fields, and too few or too many entries.
fn missing(message: &Message, seen: &[u32], above: Option<&Path<'_>>, found: &mut Violations) {
    let path = |name| Path {
        above,
        name,
        index: None,
    };
    for (field, &times) in message.fields.iter().zip(seen) {
        let (least, most) = field.entries;
        let problem = if field.many && times < least {
            Some(format!("has {times} entries; give at least {least}"))
        } else if field.many && times > most {
            Some(format!(
                "has {times} entries, but at most {most} are allowed"
            ))
        } else if times == 0 && field.required {
            Some("is missing".to_owned())
        } else if times == 0 && !field.optional {
            field.check.zero()
        } else {
            None
        };
        if let Some(problem) = problem {
            found.add(&path(field.name), problem);
        }
    }
    for oneof in message.oneofs {
        let set = message
            .fields
            .iter()
            .zip(seen)
            .any(|(field, &times)| times > 0 && oneof.numbers.contains(&field.number));
        if !set {
            let problem = format!("is missing; give {}", oneof.choice);
            found.add(&path(oneof.name), problem);
        }
    }
}

impl Check {
    fn number(&self, value: u64) -> Option<String> {
        match self {
            // Negative numbers travel as ten bytes.
            Self::Enum(known) => {
                let value = value as i32;
                let problem = || match value {
                    0 => "is missing".to_owned(),
                    value => format!("{value} is not a value of this enum"),
                };
                (!known.contains(&value)).then(problem)
            }
            Self::Signed(least, most) => in_range((value as i64).into(), *least, *most),
            Self::Unsigned(least, most) => in_range(value.into(), *least, *most),
            _ => None,
        }
    }

    fn double(&self, value: f64) -> Option<String> {
        match self {
            Self::Double(least, most) if !(*least..=*most).contains(&value) => {
                Some(format!("is {value}; give {least} to {most}"))
            }
            _ => None,
        }
    }

    fn bytes(&self, value: &[u8]) -> Option<String> {
        match *self {
            Self::Bytes(least, most) => {
                let bytes = value.len() as u64;
                if bytes == 0 && least > 0 {
                    Some("is empty".to_owned())
                } else if bytes < least {
                    Some(format!(
                        "is {bytes} bytes, but at least {least} are required"
                    ))
                } else if bytes > most {
                    Some(format!("is {bytes} bytes, but at most {most} are allowed"))
                } else {
                    None
                }
            }
            Self::Duration(least, most) => {
                let duration = prost_types::Duration::decode(value).ok()?;
                let nanos = i128::from(duration.seconds) * NANOS_PER_SECOND;
                let nanos = nanos + i128::from(duration.nanos);
                (!(least..=most).contains(&nanos)).then(|| duration_problem(nanos, least, most))
            }
            _ => None,
        }
    }

    /// Checks the value of a field that is not in the message.
    fn zero(&self) -> Option<String> {
        match self {
            Self::Bytes(..) => self.bytes(&[]),
            Self::Double(..) => self.double(0.0),
            _ => self.number(0),
        }
    }
}

fn in_range(value: i128, least: i128, most: i128) -> Option<String> {
    if (least..=most).contains(&value) {
        None
    } else if most == i128::MAX {
        Some(format!("is {value}; give {least} or more"))
    } else if least == i128::MIN {
        Some(format!("is {value}; give {most} or less"))
    } else {
        Some(format!("is {value}; give {least} to {most}"))
    }
}

fn duration_problem(nanos: i128, least: i128, most: i128) -> String {
    let seconds = |nanos: i128| nanos as f64 / NANOS_PER_SECOND as f64;
    if nanos < least && least <= 1 {
        let rule = if least == 0 {
            "negative"
        } else {
            "not positive"
        };
        format!("is {} s, which is {rule}", seconds(nanos))
    } else if nanos < least {
        format!(
            "is {} s, but must be at least {} s",
            seconds(nanos),
            seconds(least)
        )
    } else {
        format!(
            "is {} s, but must be at most {} s",
            seconds(nanos),
            seconds(most)
        )
    }
}

#[cfg(test)]
mod tests;
