//! Tables of the limits that fields declare as options of `buf.validate`.
//!
//! Only rules that the codec can enforce may be declared: any other rule fails the build, so that
//! no limit of the contract is words alone.

use prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, ServiceDescriptor,
    Value,
};
use std::collections::BTreeMap;

type Result<T> = std::result::Result<T, String>;

/// The most fields of a message with rules; the codec counts them without allocating.
const MAX_FIELDS: usize = 32;

/// Writes the tables of every request of ours, and of every message below one that has rules.
pub(super) fn tables(pool: &DescriptorPool) -> Result<String> {
    let mut tables = Tables::default();
    let mut requests = BTreeMap::new();
    let ours = |service: &ServiceDescriptor| service.full_name().starts_with("tavern.");
    for service in pool.services().filter(ours) {
        for method in service.methods() {
            let input = method.input();
            if let Some(index) = tables.message(&input)? {
                requests.insert(input.full_name().to_owned(), index);
            }
        }
    }
    let requests: Vec<(String, usize)> = requests.into_iter().collect();
    let messages = tables.written.join(",\n");
    Ok(format!(
        "pub(super) static REQUESTS: &[(&str, usize)] = &{requests:?};\n\
         pub(super) static MESSAGES: &[Message] = &[\n{messages}\n];\n"
    ))
}

#[derive(Default)]
struct Tables {
    /// The index of each visited message's table; `None` without rules.
    places: BTreeMap<String, Option<usize>>,
    written: Vec<String>,
    /// The messages around the visited message.
    around: Vec<String>,
}

impl Tables {
    /// Returns the index of the message's table, if it or a message below it has rules.
    fn message(&mut self, message: &MessageDescriptor) -> Result<Option<usize>> {
        let name = message.full_name().to_owned();
        if let Some(place) = self.places.get(&name) {
            return Ok(*place);
        }
        if self.around.contains(&name) {
            return Err(format!("{name} holds itself; bound its depth first"));
        }
        self.around.push(name.clone());
        let mut fields = BTreeMap::new();
        for field in message.fields() {
            if let Some(written) = self.field(&field)? {
                fields.insert(field.number(), written);
            }
        }
        self.around.pop();
        let oneofs = oneofs(message, &mut fields)?;
        let place = (!fields.is_empty()).then(|| {
            let fields: Vec<String> = fields.into_values().collect();
            let table = format!(
                "Message {{ fields: &[{}], oneofs: &[{oneofs}] }}",
                fields.join(", ")
            );
            self.written.push(table);
            self.written.len() - 1
        });
        if place.is_some() && message.fields().len() > MAX_FIELDS {
            return Err(format!("{name} has more than {MAX_FIELDS} fields"));
        }
        self.places.insert(name, place);
        Ok(place)
    }

    fn field(&mut self, field: &FieldDescriptor) -> Result<Option<String>> {
        let mut rules = Rules::of(field);
        let mut entries = None;
        let many = field.is_list() || field.is_map();
        if many {
            let kind = if field.is_map() { "map" } else { "repeated" };
            let mut list = rules.part(kind);
            let (least, most) = match kind {
                "map" => ("min_pairs", "max_pairs"),
                _ => ("min_items", "max_items"),
            };
            let bounds = (list.count(least), list.count(most));
            entries = (bounds != (None, None)).then_some(bounds);
            let items = list.part("items");
            list.done()?;
            rules.done()?;
            rules = items;
        }
        let required = rules.flag("required");
        let check = self.check(field, &mut rules)?;
        rules.done()?;
        if entries.is_none() && !required && check == "Check::Nothing" {
            return Ok(None);
        }
        let (least, most) = entries.unwrap_or_default();
        let entries = (
            least.unwrap_or_default(),
            most.unwrap_or(u64::from(u32::MAX)),
        );
        Ok(Some(write_field(
            field,
            &format!("{entries:?}"),
            required,
            &check,
        )))
    }

    fn check(&mut self, field: &FieldDescriptor, rules: &mut Rules) -> Result<String> {
        if field.is_map() {
            return Ok("Check::Nothing".to_owned());
        }
        let check = match field.kind() {
            Kind::String => bytes_check(&mut rules.part("string"), "min_bytes", "max_bytes")?,
            Kind::Bytes => bytes_check(&mut rules.part("bytes"), "min_len", "max_len")?,
            Kind::Enum(kind) => {
                let mut given = rules.part("enum");
                let (defined, not_in) = (given.flag("defined_only"), given.numbers("not_in"));
                given.done()?;
                let known: Vec<i32> = kind.values().map(|value| value.number()).collect();
                let known: Vec<i32> = known.into_iter().filter(|n| !not_in.contains(n)).collect();
                if !defined {
                    let name = field.full_name();
                    return Err(format!("{name}: declare `enum.defined_only`"));
                }
                Some(format!("Check::Enum(&{known:?})"))
            }
            Kind::Int32 => range_check(&mut rules.part("int32"), "Signed")?,
            Kind::Uint32 => range_check(&mut rules.part("uint32"), "Unsigned")?,
            Kind::Uint64 => range_check(&mut rules.part("uint64"), "Unsigned")?,
            Kind::Double => double_check(&mut rules.part("double"))?,
            Kind::Message(kind) if kind.full_name() == "google.protobuf.Duration" => {
                range_check(&mut rules.part("duration"), "Duration")?
            }
            Kind::Message(kind) => self
                .message(&kind)?
                .map(|place| format!("Check::Message({place})")),
            _ => None,
        };
        let packed = field.is_list() && !matches!(field.kind(), Kind::String | Kind::Bytes);
        match check {
            Some(check) if packed && !check.starts_with("Check::Message") => Err(format!(
                "{}: rules for entries of this type are not enforced",
                field.full_name()
            )),
            check => Ok(check.unwrap_or_else(|| "Check::Nothing".to_owned())),
        }
    }
}

/// Writes the one-ofs that must be set, and has the codec count their fields.
fn oneofs(message: &MessageDescriptor, fields: &mut BTreeMap<u32, String>) -> Result<String> {
    let extension = message.parent_pool();
    let extension = extension.get_extension_by_name("buf.validate.oneof");
    let mut written = Vec::new();
    for oneof in message.oneofs().filter(|oneof| !oneof.is_synthetic()) {
        let Some(extension) = &extension else { break };
        let mut rules = Rules::read(oneof.full_name(), &oneof.options(), extension);
        let required = rules.flag("required");
        rules.done()?;
        if !required {
            continue;
        }
        let names: Vec<String> = oneof
            .fields()
            .map(|field| field.name().to_owned())
            .collect();
        for field in oneof.fields() {
            fields.entry(field.number()).or_insert_with(|| {
                write_field(
                    &field,
                    &format!("(0, {})", u32::MAX),
                    false,
                    "Check::Nothing",
                )
            });
        }
        let numbers: Vec<u32> = oneof.fields().map(|field| field.number()).collect();
        written.push(format!(
            "Oneof {{ name: {:?}, numbers: &{numbers:?}, choice: {:?} }}",
            oneof.name(),
            names.join(" or ")
        ));
    }
    Ok(written.join(", "))
}

fn write_field(field: &FieldDescriptor, entries: &str, required: bool, check: &str) -> String {
    let many = field.is_list() || field.is_map();
    format!(
        "Field {{ number: {}, name: {:?}, many: {many}, entries: {entries}, \
         optional: {}, required: {required}, check: {check} }}",
        field.number(),
        field.name(),
        many || field.supports_presence(),
    )
}

fn bytes_check(rules: &mut Rules, least: &str, most: &str) -> Result<Option<String>> {
    let exact = rules.count("len_bytes");
    let (least, most) = (exact.or(rules.count(least)), exact.or(rules.count(most)));
    rules.done()?;
    let bounds = (least.unwrap_or_default(), most.unwrap_or(u64::MAX));
    Ok((least.is_some() || most.is_some()).then(|| format!("Check::Bytes{bounds:?}")))
}

/// A range of whole numbers; durations count in nanoseconds.
fn range_check(rules: &mut Rules, kind: &str) -> Result<Option<String>> {
    let least = rules.whole("gte").or(rules.whole("gt").map(|n| n + 1));
    let most = rules.whole("lte").or(rules.whole("lt").map(|n| n - 1));
    rules.done()?;
    if least.is_none() && most.is_none() {
        return Ok(None);
    }
    let (least, most) = (least.unwrap_or(i128::MIN), most.unwrap_or(i128::MAX));
    Ok(Some(format!("Check::{kind}({least}, {most})")))
}

fn double_check(rules: &mut Rules) -> Result<Option<String>> {
    let bounds = (rules.double("gte"), rules.double("lte"));
    rules.done()?;
    match bounds {
        (None, None) => Ok(None),
        (Some(least), Some(most)) => Ok(Some(format!("Check::Double({least:?}, {most:?})"))),
        _ => Err(format!("{}: declare gte and lte", rules.of)),
    }
}

/// Rules of one field, taken out one by one.
struct Rules {
    /// The full name of the field.
    of: String,
    left: Option<DynamicMessage>,
}

impl Rules {
    fn of(field: &FieldDescriptor) -> Self {
        let pool = field.parent_message().parent_pool();
        match pool.get_extension_by_name("buf.validate.field") {
            Some(extension) => Self::read(field.full_name(), &field.options(), &extension),
            None => Self {
                of: field.full_name().to_owned(),
                left: None,
            },
        }
    }

    fn read(
        of: &str,
        options: &DynamicMessage,
        extension: &prost_reflect::ExtensionDescriptor,
    ) -> Self {
        let given = options.has_extension(extension);
        let left = given.then(|| options.get_extension(extension).into_owned());
        Self {
            of: of.to_owned(),
            left: left.and_then(|value| value.as_message().cloned()),
        }
    }

    fn take(&mut self, name: &str) -> Option<Value> {
        let left = self.left.as_mut()?;
        left.has_field_by_name(name)
            .then(|| left.take_field_by_name(name))?
    }

    fn part(&mut self, name: &str) -> Self {
        let part = self.take(name);
        Self {
            of: self.of.clone(),
            left: part.and_then(|part| part.as_message().cloned()),
        }
    }

    fn flag(&mut self, name: &str) -> bool {
        self.take(name).and_then(|value| value.as_bool()) == Some(true)
    }

    fn count(&mut self, name: &str) -> Option<u64> {
        self.take(name)?.as_u64()
    }

    fn numbers(&mut self, name: &str) -> Vec<i32> {
        let numbers = self.take(name);
        let numbers = numbers.as_ref().and_then(Value::as_list);
        numbers
            .into_iter()
            .flatten()
            .filter_map(Value::as_i32)
            .collect()
    }

    fn double(&mut self, name: &str) -> Option<f64> {
        self.take(name)?.as_f64()
    }

    fn whole(&mut self, name: &str) -> Option<i128> {
        match self.take(name)? {
            Value::I32(number) => Some(number.into()),
            Value::U32(number) => Some(number.into()),
            Value::U64(number) => Some(number.into()),
            Value::Message(duration) => {
                let seconds = duration.get_field_by_name("seconds")?.as_i64()?;
                let nanos = duration.get_field_by_name("nanos")?.as_i32()?;
                Some(i128::from(seconds) * 1_000_000_000 + i128::from(nanos))
            }
            _ => None,
        }
    }

    /// Refuses rules that were not taken out.
    fn done(&self) -> Result<()> {
        match &self.left {
            Some(left) if left.fields().next().is_some() => Err(format!(
                "{}: {left:?} is not enforced; teach it to the codec or declare another rule",
                self.of
            )),
            _ => Ok(()),
        }
    }
}
