//! Requests that break one rule each, made from the descriptors of the contract.

use std::collections::HashMap;
use std::fmt::{self, Display, Formatter};

use prost::Message as _;
use prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor,
    OneofDescriptor, ServiceDescriptor, Value,
};

/// A request that breaks one rule.
#[derive(Debug)]
pub(super) struct Breakage {
    /// The method that receives it, as `/package.Service/Method`.
    pub(super) method: String,
    /// The path of the field that is wrong.
    pub(super) path: String,
    /// The rule, with the full name of the field.
    pub(super) rule: String,
    pub(super) request: Vec<u8>,
}

impl Display for Breakage {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let (method, path, rule) = (&self.method, &self.path, &self.rule);
        write!(formatter, "{method} with a wrong {path} ({rule})")
    }
}

/// A message that breaks one rule.
struct Broken {
    path: String,
    rule: String,
    message: DynamicMessage,
}

/// Returns every way to break one rule of a request, for every method of ours.
pub(super) fn of_all_methods(contract: &DescriptorPool) -> Vec<Breakage> {
    let is_ours = |service: &ServiceDescriptor| service.package_name().starts_with("tavern.");
    let methods = contract.services().filter(is_ours).flat_map(|service| {
        let methods: Vec<_> = service.methods().collect();
        methods.into_iter().map(move |method| {
            let path = format!("/{}/{}", service.full_name(), method.name());
            (path, method.input())
        })
    });
    let mut cases = Vec::new();
    for (method, input) in methods {
        cases.extend(broken(&input).into_iter().map(|broken| Breakage {
            method: method.clone(),
            path: broken.path,
            rule: broken.rule,
            request: broken.message.encode_to_vec(),
        }));
    }
    cases
}

fn broken(message: &MessageDescriptor) -> Vec<Broken> {
    let mut found = Vec::new();
    for field in message.fields() {
        let with = |value: Value| {
            let mut message = valid(message);
            message.set_field(&field, value);
            message
        };
        for (path, rule, value) in wrong_values(&field) {
            let message = match value {
                Some(value) => with(value),
                None => {
                    let mut message = valid(message);
                    message.clear_field(&field);
                    message
                }
            };
            let rule = format!("{}: {rule}", field.full_name());
            found.push(Broken {
                path,
                rule,
                message,
            });
        }
        let Some(below) = below(&field) else { continue };
        for broken in self::broken(&below) {
            let (index, value) = match field.is_list() {
                true => (
                    "[0]",
                    Value::List(vec![Value::Message(broken.message.clone())]),
                ),
                false => ("", Value::Message(broken.message.clone())),
            };
            found.push(Broken {
                path: format!("{}{index}.{}", field.name(), broken.path),
                rule: broken.rule,
                message: with(value),
            });
        }
    }
    for oneof in message.oneofs().filter(is_required) {
        let mut message = valid(message);
        for field in oneof.fields() {
            message.clear_field(&field);
        }
        found.push(Broken {
            path: oneof.name().to_owned(),
            rule: format!("{}: required", oneof.full_name()),
            message,
        });
    }
    found
}

/// Returns the message of a field, unless it is a well-known type of protobuf.
fn below(field: &FieldDescriptor) -> Option<MessageDescriptor> {
    match field.kind() {
        Kind::Message(message) if !field.is_map() => message
            .full_name()
            .starts_with("tavern.")
            .then_some(message),
        _ => None,
    }
}

/// Returns a message that keeps every rule and sets no other fields.
fn valid(message: &MessageDescriptor) -> DynamicMessage {
    let mut made = DynamicMessage::new(message.clone());
    let chosen: Vec<u32> = message
        .oneofs()
        .filter(is_required)
        .filter_map(|oneof| oneof.fields().next())
        .map(|field| field.number())
        .collect();
    for field in message.fields() {
        let required = flag(rules(&field).as_ref(), "required");
        let in_oneof = field.containing_oneof().is_some();
        if chosen.contains(&field.number()) {
            made.set_field(&field, entry(&field));
        } else if field.is_list() {
            let least = number(part(rules(&field), "repeated").as_ref(), "min_items");
            let entries = (0..least.unwrap_or_default()).map(|_| entry(&field));
            made.set_field(&field, Value::List(entries.collect()));
        } else if required || (!in_oneof && !field.supports_presence() && !field.is_map()) {
            made.set_field(&field, entry(&field));
        }
    }
    made
}

/// Returns a valid value of a field, or of an entry of it.
fn entry(field: &FieldDescriptor) -> Value {
    let rules = match field.is_list() {
        true => part(part(rules(field), "repeated"), "items"),
        false => rules(field),
    };
    let count = |kind: &str, rule: &str| {
        let least = number(part(rules.clone(), kind).as_ref(), rule);
        usize::try_from(least.unwrap_or_default()).expect("a small number")
    };
    match field.kind() {
        Kind::String => {
            let bytes = count("string", "min_bytes").max(count("string", "len_bytes"));
            Value::String("x".repeat(bytes))
        }
        Kind::Bytes => Value::Bytes(vec![b'x'; count("bytes", "min_len")].into()),
        Kind::Message(message) => {
            let shortest = part(part(rules, "duration"), "gte");
            Value::Message(shortest.unwrap_or_else(|| valid(&message)))
        }
        Kind::Enum(kind) => {
            let not_in = list(part(rules, "enum").as_ref(), "not_in");
            let number = kind.values().map(|value| value.number());
            let allowed = number.into_iter().find(|number| !not_in.contains(number));
            Value::EnumNumber(allowed.expect("an enum has an allowed value"))
        }
        kind => Value::default_value(&kind),
    }
}

type WrongValue = (String, String, Option<Value>);

/// Returns a value, or none at all, for each rule that it breaks.
fn wrong_values(field: &FieldDescriptor) -> Vec<WrongValue> {
    let Some(given) = rules(field) else {
        return Vec::new();
    };
    let name = field.name();
    let mut wrong = Vec::new();
    if flag(Some(&given), "required") {
        wrong.push((name.to_owned(), "required".to_owned(), None));
    }
    for (kind, value) in given.fields() {
        let Value::Message(kind_rules) = value else {
            continue;
        };
        for (rule, limit) in kind_rules.fields() {
            let named = format!("{}.{}", kind.name(), rule.name());
            if rule.name() == "items" {
                for (below, value) in items(field, limit) {
                    let value = Value::List(vec![value]);
                    wrong.push((
                        format!("{name}[0]"),
                        format!("{named}.{below}"),
                        Some(value),
                    ));
                }
            } else {
                let values = breaking(field, kind.name(), rule.name(), limit);
                let values = values.into_iter();
                wrong.extend(values.map(|value| (name.to_owned(), named.clone(), Some(value))));
            }
        }
    }
    wrong
}

fn items(field: &FieldDescriptor, rules: &Value) -> Vec<(String, Value)> {
    let mut wrong = Vec::new();
    let rules = rules.as_message().expect("rules of entries are a message");
    for (kind, value) in rules.fields() {
        let Value::Message(kind_rules) = value else {
            continue;
        };
        for (rule, limit) in kind_rules.fields() {
            let named = format!("{}.{}", kind.name(), rule.name());
            let values = breaking(field, kind.name(), rule.name(), limit);
            wrong.extend(values.into_iter().map(|value| (named.clone(), value)));
        }
    }
    wrong
}

/// Returns values that break one rule. A rule that is not known here fails the test.
fn breaking(field: &FieldDescriptor, kind: &str, rule: &str, limit: &Value) -> Vec<Value> {
    let count = |change: i64| {
        let limit = i64::try_from(limit.as_u64().expect("a count")).expect("a small number");
        usize::try_from(limit + change).expect("a small number")
    };
    match (kind, rule) {
        ("string", "min_bytes") => vec![Value::String("x".repeat(count(-1)))],
        ("string", "len_bytes") => [-1, 1]
            .map(|change| Value::String("x".repeat(count(change))))
            .into(),
        ("string", "max_bytes") => vec![Value::String("x".repeat(count(1)))],
        ("bytes", "min_len") => vec![Value::Bytes(vec![0; count(-1)].into())],
        ("bytes", "max_len") => vec![Value::Bytes(vec![0; count(1)].into())],
        ("enum", "defined_only") => vec![Value::EnumNumber(9_999), Value::EnumNumber(-1)],
        ("enum", "not_in") => {
            let not_in = limit.as_list().expect("a list of numbers").iter();
            not_in
                .map(|number| Value::EnumNumber(number.as_i32().expect("a number")))
                .collect()
        }
        ("repeated", "min_items") => vec![Value::List(vec![entry(field); count(-1)])],
        ("repeated", "max_items") => vec![Value::List(vec![entry(field); count(1)])],
        ("map", "max_pairs") => {
            let pair = |n| {
                (
                    MapKey::String(format!("K{n}")),
                    Value::String(String::new()),
                )
            };
            vec![Value::Map(
                (0..count(1)).map(pair).collect::<HashMap<_, _>>(),
            )]
        }
        (_, "gte") => vec![next(limit, false)],
        (_, "lte") => vec![next(limit, true)],
        (_, "gt" | "lt") => vec![limit.clone()],
        _ => panic!("{}: {kind}.{rule} is not known here", field.full_name()),
    }
}

/// Returns the next value above or below a limit.
fn next(limit: &Value, above: bool) -> Value {
    let step = if above { 1 } else { -1 };
    match limit {
        Value::I32(limit) => Value::I32(limit + step),
        Value::U32(limit) => Value::U32(limit.saturating_add_signed(step)),
        Value::U64(limit) => Value::U64(limit.saturating_add_signed(step.into())),
        Value::F64(limit) => Value::F64(limit + f64::from(step) / 2.0),
        Value::Message(duration) => {
            let mut duration = duration.clone();
            let nanos = duration.get_field_by_name("nanos");
            let nanos = nanos.and_then(|nanos| nanos.as_i32()).unwrap_or_default();
            duration.set_field_by_name("nanos", Value::I32(nanos + step));
            Value::Message(duration)
        }
        limit => panic!("{limit:?} is not a limit"),
    }
}

fn rules(field: &FieldDescriptor) -> Option<DynamicMessage> {
    let pool = field.parent_message().parent_pool().clone();
    let extension = pool.get_extension_by_name("buf.validate.field")?;
    let options = field.options();
    if !options.has_extension(&extension) {
        return None;
    }
    options.get_extension(&extension).as_message().cloned()
}

fn is_required(oneof: &OneofDescriptor) -> bool {
    let pool = oneof.parent_message().parent_pool().clone();
    let extension = pool.get_extension_by_name("buf.validate.oneof");
    extension.is_some_and(|extension| {
        let options = oneof.options();
        let rules = options.get_extension(&extension);
        flag(rules.as_message(), "required")
    })
}

fn part(rules: Option<DynamicMessage>, name: &str) -> Option<DynamicMessage> {
    let rules = rules.filter(|rules| rules.has_field_by_name(name))?;
    rules.get_field_by_name(name)?.as_message().cloned()
}

fn flag(rules: Option<&DynamicMessage>, name: &str) -> bool {
    let flag = rules.and_then(|rules| rules.get_field_by_name(name));
    flag.and_then(|flag| flag.as_bool()) == Some(true)
}

fn number(rules: Option<&DynamicMessage>, name: &str) -> Option<u64> {
    rules?.get_field_by_name(name)?.as_u64()
}

fn list(rules: Option<&DynamicMessage>, name: &str) -> Vec<i32> {
    let numbers = rules.and_then(|rules| rules.get_field_by_name(name));
    let numbers = numbers.as_ref().and_then(|numbers| numbers.as_list());
    numbers
        .unwrap_or_default()
        .iter()
        .filter_map(Value::as_i32)
        .collect()
}
