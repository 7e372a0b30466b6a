//! Numbers of a request that the contract gives no meaning: a protobuf decoder takes any.
//!
//! A request that names an unknown durability must not run with another, so such a request is
//! refused before its handler sees it. What is checked is read from the descriptors, so that no
//! method can forget it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::LazyLock;

use prost::Message;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorSet,
    field_descriptor_proto::{Label, Type},
};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

/// The most violations that are reported.
const MAX_VIOLATIONS: usize = 20;

/// The deepest message that is looked into; the decoder refuses deeper ones.
const MAX_DEPTH: usize = 100;

/// Enums that the handlers of the gateway check, together with everything else that is wrong.
const CHECKED_BY_GATEWAY: [&str; 2] = ["dialect", "detail"];

/// What is checked of a message: nothing of most.
type Shape = HashMap<u32, Field>;

#[derive(Debug)]
struct Field {
    name: String,
    repeated: bool,
    check: Check,
}

#[derive(Debug)]
enum Check {
    /// One of these numbers.
    Enum(BTreeSet<i32>),
    /// Not negative.
    Size,
    /// The fields of a message with this full name.
    Message(String),
}

static SHAPES: LazyLock<HashMap<String, Shape>> = LazyLock::new(read_shapes);

/// Refuses a request with numbers that mean nothing.
pub(super) fn check(message: &str, bytes: &[u8]) -> Result<(), Status> {
    let Some(shape) = SHAPES.get(message) else {
        return Ok(());
    };
    let mut violations = Vec::new();
    walk(shape, bytes, "", MAX_DEPTH, &mut violations);
    let Some((field, what)) = violations.first() else {
        return Ok(());
    };
    let message = format!("the request is not valid: {field}: {what}");
    let mut details =
        ErrorDetails::with_error_info("INVALID_FIELDS", crate::ERROR_DOMAIN, HashMap::new());
    for (field, what) in violations {
        details.add_bad_request_violation(field, what);
    }
    Err(Status::with_error_details(
        Code::InvalidArgument,
        message,
        details,
    ))
}

/// Adds what is wrong in a message; what is malformed is left to the decoder.
fn walk(
    shape: &Shape,
    mut bytes: &[u8],
    path: &str,
    depth: usize,
    violations: &mut Vec<(String, String)>,
) -> Option<()> {
    let mut seen: HashMap<u32, usize> = HashMap::new();
    while !bytes.is_empty() && violations.len() < MAX_VIOLATIONS {
        let (number, wire) = decode_key(&mut bytes).ok()?;
        let Some(field) = shape.get(&number) else {
            skip_field(wire, number, &mut bytes, DecodeContext::default()).ok()?;
            continue;
        };
        let name = if field.repeated {
            let index = seen.entry(number).or_default();
            *index += 1;
            format!("{path}{}[{}]", field.name, *index - 1)
        } else {
            format!("{path}{}", field.name)
        };
        match wire {
            WireType::Varint => {
                let value = decode_varint(&mut bytes).ok()?;
                violations.extend(field.check.refuse(value).map(|what| (name, what)));
            }
            WireType::LengthDelimited => {
                let length = usize::try_from(decode_varint(&mut bytes).ok()?).ok()?;
                let (mut inner, rest) = bytes.split_at_checked(length)?;
                bytes = rest;
                match &field.check {
                    Check::Message(message) => {
                        if let (Some(shape), 1..) = (SHAPES.get(message), depth) {
                            walk(shape, inner, &format!("{name}."), depth - 1, violations)?;
                        }
                    }
                    // Packed numbers.
                    check => {
                        while !inner.is_empty() {
                            let value = decode_varint(&mut inner).ok()?;
                            let what = check.refuse(value);
                            violations.extend(what.map(|what| (name.clone(), what)));
                        }
                    }
                }
            }
            _ => skip_field(wire, number, &mut bytes, DecodeContext::default()).ok()?,
        }
    }
    Some(())
}

impl Check {
    fn refuse(&self, value: u64) -> Option<String> {
        // Negative numbers travel as ten bytes.
        let value = value as i32;
        match self {
            Self::Enum(known) if !known.contains(&value) => {
                Some(format!("{value} is not a value of this enum"))
            }
            Self::Size if value < 0 => Some(format!("is {value}; give 0 for the default, or more")),
            _ => None,
        }
    }
}

/// Reads the fields to check of every message that has any, or that leads to one that has.
fn read_shapes() -> HashMap<String, Shape> {
    let set = FileDescriptorSet::decode(crate::FILE_DESCRIPTOR_SET).unwrap_or_default();
    let (mut enums, mut messages) = (HashMap::new(), Vec::new());
    for file in &set.file {
        let scope = format!(".{}", file.package());
        collect(
            &scope,
            &file.enum_type,
            &file.message_type,
            &mut enums,
            &mut messages,
        );
    }
    let mut shapes: HashMap<String, Shape> = messages
        .iter()
        .map(|(name, message)| (name[1..].to_owned(), shape(name, message, &enums)))
        .collect();
    // A message field is kept only where it leads to something, which takes a round per level.
    loop {
        let empty: HashSet<String> = shapes
            .iter()
            .filter(|(_, shape)| shape.is_empty())
            .map(|(name, _)| name.clone())
            .collect();
        if empty.is_empty() {
            return shapes;
        }
        shapes.retain(|name, _| !empty.contains(name));
        for shape in shapes.values_mut() {
            shape.retain(
                |_, field| !matches!(&field.check, Check::Message(name) if empty.contains(name)),
            );
        }
    }
}

fn collect<'a>(
    scope: &str,
    own_enums: &[EnumDescriptorProto],
    own_messages: &'a [DescriptorProto],
    enums: &mut HashMap<String, BTreeSet<i32>>,
    messages: &mut Vec<(String, &'a DescriptorProto)>,
) {
    for own in own_enums {
        let numbers = own.value.iter().map(|value| value.number()).collect();
        enums.insert(format!("{scope}.{}", own.name()), numbers);
    }
    for own in own_messages {
        let name = format!("{scope}.{}", own.name());
        collect(&name, &own.enum_type, &own.nested_type, enums, messages);
        messages.push((name, own));
    }
}

fn shape(
    message: &str,
    descriptor: &DescriptorProto,
    enums: &HashMap<String, BTreeSet<i32>>,
) -> Shape {
    let by_gateway = |field: &FieldDescriptorProto| {
        message.starts_with(".tavern.gateway.") && CHECKED_BY_GATEWAY.contains(&field.name())
    };
    let mut shape = Shape::new();
    for field in &descriptor.field {
        let check = match field.r#type() {
            Type::Enum if !by_gateway(field) => {
                enums.get(field.type_name()).cloned().map(Check::Enum)
            }
            Type::Int32 if field.name() == "page_size" => Some(Check::Size),
            Type::Message => Some(Check::Message(field.type_name()[1..].to_owned())),
            _ => None,
        };
        if let (Some(check), Ok(number)) = (check, u32::try_from(field.number())) {
            let field = Field {
                name: field.name().to_owned(),
                repeated: field.label() == Label::Repeated,
                check,
            };
            shape.insert(number, field);
        }
    }
    shape
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tavern::common::v1::RunOptions;
    use crate::tavern::gateway::v1::{InvokeTextRequest, ParsePolicy, ParseTextRequest};
    use crate::tavern::registry::v1::ListToolsRequest;
    use prost::Name;

    fn refused<M: Message + Name>(request: &M) -> Vec<String> {
        match check(&M::full_name(), &request.encode_to_vec()) {
            Ok(()) => Vec::new(),
            Err(status) => status
                .get_details_bad_request()
                .unwrap()
                .field_violations
                .into_iter()
                .map(|violation| violation.field)
                .collect(),
        }
    }

    #[test]
    fn numbers_without_a_meaning_are_refused_at_every_depth() {
        let with_durability = |durability| InvokeTextRequest {
            options: Some(RunOptions {
                durability,
                ..RunOptions::default()
            }),
            ..InvokeTextRequest::default()
        };
        assert!(refused(&with_durability(0)).is_empty());
        assert_eq!(refused(&with_durability(9)), ["options.durability"]);
        assert_eq!(refused(&with_durability(-1)), ["options.durability"]);
        let policy = ParsePolicy {
            multi_block: 9,
            ..ParsePolicy::default()
        };
        let request = ParseTextRequest {
            policy: Some(policy),
            ..ParseTextRequest::default()
        };
        assert_eq!(refused(&request), ["policy.multi_block"]);
        for (page_size, wrong) in [(-1, true), (i32::MIN, true), (0, false), (9, false)] {
            let request = ListToolsRequest {
                page_size,
                ..ListToolsRequest::default()
            };
            assert_eq!(refused(&request).is_empty(), !wrong, "{page_size}");
        }
    }

    #[test]
    fn every_enum_and_page_size_of_a_request_is_checked() {
        let set = FileDescriptorSet::decode(crate::FILE_DESCRIPTOR_SET).unwrap();
        for file in &set.file {
            for message in &file.message_type {
                for field in &message.field {
                    let of_interest = field.r#type() == Type::Enum || field.name() == "page_size";
                    let in_request = message.name().ends_with("Request");
                    let by_gateway = file.package().starts_with("tavern.gateway")
                        && CHECKED_BY_GATEWAY.contains(&field.name());
                    if of_interest && in_request && !by_gateway {
                        let name = format!("{}.{}", file.package(), message.name());
                        let number = u32::try_from(field.number()).unwrap();
                        assert!(
                            SHAPES[&name].contains_key(&number),
                            "{name}.{}",
                            field.name()
                        );
                    }
                }
            }
        }
    }
}
