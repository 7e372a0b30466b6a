//! The section `configOptions` of a manifest.

use core_types::PluginId;
use json_schema::Schema;
use serde_json::{Number, Value};

use super::{
    check,
    kind::{Choice, ListBounds, OptionDeclaration, OptionKind, OptionScope, TextBounds},
};
use crate::section::{Findings, Section, text_of};

/// The longest name of an option behind its prefix, in bytes.
const MAX_NAME_BYTES: usize = 128;
/// The words of `type`.
const TYPES: [&str; 9] = [
    "string",
    "text",
    "integer",
    "number",
    "boolean",
    "enum",
    "string_list",
    "json",
    "secret",
];
/// The range of counts and lengths.
const COUNTS: std::ops::RangeInclusive<i64> = 0..=1_000_000;

/// Reads the options that a manifest declares. Without the name of the plugin keys cannot be
/// checked.
pub(crate) fn read_declarations(
    root: &mut Section<'_>,
    plugin: Option<&PluginId>,
    findings: &mut Findings,
) -> Vec<OptionDeclaration> {
    let mut options: Vec<OptionDeclaration> = Vec::new();
    let items = root.list("configOptions", "a list of {key, type}", findings);
    for (place, item) in items {
        let Some(option) = read_one(&place, item, plugin, findings) else {
            continue;
        };
        if options.iter().any(|other| other.key == option.key) {
            let message = format!("the key '{}' is declared twice; change one", option.key);
            findings.wrong(format!("{place}/key"), "key_taken", message);
        }
        options.push(option);
    }
    options
}

fn read_one(
    place: &str,
    item: &Value,
    plugin: Option<&PluginId>,
    findings: &mut Findings,
) -> Option<OptionDeclaration> {
    let wanted = "a mapping with 'key' and 'type'";
    let mut section = Section::of(item, place, "each option", wanted, findings)?;
    let key = key(&mut section, plugin, findings);
    let display_name = section.text("displayName", findings).unwrap_or_default();
    let description = section.text("description", findings).unwrap_or_default();
    let kind = kind(&mut section, findings);
    let required = section.flag("required", findings).unwrap_or_default();
    let scopes = scopes(&mut section, kind.as_ref(), findings);
    let order = section.whole("order", -1_000_000..=1_000_000, findings);
    let group = section.text("group", findings).unwrap_or_default();
    let deprecated = deprecated(&mut section, findings);
    let default = section.get("default").cloned();
    section.close(findings);
    let kind = kind?;
    if let Some(default) = &default {
        check_default(&kind, default, place, findings);
    }
    let (key, name) = key?;
    Some(OptionDeclaration {
        display_name: match display_name.is_empty() {
            true => name.clone(),
            false => display_name,
        },
        key,
        name,
        description,
        kind,
        default,
        required,
        scopes,
        order,
        group,
        deprecated,
        pointer: place.to_owned(),
    })
}

/// Reads the key; returns it whole and without its prefix.
fn key(
    section: &mut Section<'_>,
    plugin: Option<&PluginId>,
    findings: &mut Findings,
) -> Option<(String, String)> {
    let place = section.place("key");
    let key = section
        .get("key")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let prefix = format!("extensions.{}.", plugin?);
    let plain = |name: &&str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        !name.is_empty() && name.len() <= MAX_NAME_BYTES && name.chars().all(plain)
    };
    let Some(name) = key.strip_prefix(&prefix).filter(plain) else {
        let last = key.rsplit('.').next().filter(plain).unwrap_or("<option>");
        let message =
            format!("the key '{key}' must look like {prefix}<option>; write {prefix}{last}");
        findings.wrong(place, "invalid_key", message);
        return None;
    };
    Some((key.to_owned(), name.to_owned()))
}

fn kind(section: &mut Section<'_>, findings: &mut Findings) -> Option<OptionKind> {
    let place = section.place("type");
    let word = match section.get("type") {
        None if findings.is_strict => {
            let message = format!("type is missing; add one of {}", TYPES.join(", "));
            findings.wrong(place, "missing_parameter", message);
            return None;
        }
        // Options were written without a type before there was a version of manifests.
        None => "string",
        Some(_) => section.word("type", &TYPES, findings)?,
    };
    Some(match word {
        "string" => OptionKind::Line(text_bounds(section, findings)),
        "text" => OptionKind::Text(text_bounds(section, findings)),
        "integer" => {
            let minimum = section.whole("minimum", i64::MIN..=i64::MAX, findings);
            let maximum = section.whole("maximum", i64::MIN..=i64::MAX, findings);
            let minimum = minimum.unwrap_or(i64::MIN);
            let maximum = maximum.unwrap_or(i64::MAX);
            check_range(section, "minimum", minimum > maximum, findings);
            OptionKind::Integer { minimum, maximum }
        }
        "number" => {
            let minimum = number(section, "minimum", findings);
            let maximum = number(section, "maximum", findings);
            let size = |bound: &Option<Number>| bound.as_ref().and_then(Number::as_f64);
            let crossed = size(&minimum)
                .zip(size(&maximum))
                .is_some_and(|(a, b)| a > b);
            check_range(section, "minimum", crossed, findings);
            OptionKind::Number { minimum, maximum }
        }
        "boolean" => OptionKind::Boolean,
        "enum" => OptionKind::Enum {
            choices: choices(section, findings),
        },
        "string_list" => {
            let min_items = count(section, "minItems", findings).unwrap_or_default();
            let max_items = count(section, "maxItems", findings);
            let crossed = max_items.is_some_and(|most| min_items > most);
            check_range(section, "minItems", crossed, findings);
            OptionKind::List(ListBounds {
                min_items,
                max_items,
                item: text_bounds(section, findings),
            })
        }
        "json" => OptionKind::Json {
            schema: schema(section, findings),
        },
        _ => OptionKind::Secret {
            secret: section.required_text("secret", "weather_api_key", findings)?,
        },
    })
}

fn text_bounds(section: &mut Section<'_>, findings: &mut Findings) -> TextBounds {
    let min_length = count(section, "minLength", findings).unwrap_or_default();
    let max_length = count(section, "maxLength", findings);
    let crossed = max_length.is_some_and(|most| min_length > most);
    check_range(section, "minLength", crossed, findings);
    let place = section.place("pattern");
    let pattern = section.text("pattern", findings);
    if let Some(Err(problem)) = pattern.as_deref().map(check::compile_pattern) {
        let message = format!("the pattern cannot be used: {problem}");
        findings.wrong(place, "invalid_pattern", message);
    }
    TextBounds {
        min_length,
        max_length,
        pattern,
    }
}

fn count(section: &mut Section<'_>, key: &'static str, findings: &mut Findings) -> Option<u64> {
    section.whole(key, COUNTS, findings).map(i64::unsigned_abs)
}

fn number(section: &mut Section<'_>, key: &'static str, findings: &mut Findings) -> Option<Number> {
    let place = section.place(key);
    match section.get(key)? {
        Value::Number(number) => Some(number.clone()),
        other => {
            findings.mismatch(&place, key, "a number", other);
            None
        }
    }
}

fn check_range(section: &Section<'_>, key: &str, crossed: bool, findings: &mut Findings) {
    if crossed {
        let message = format!("{key} is above the upper bound, so no value is left; lower it");
        findings.wrong(section.place(key), "invalid_range", message);
    }
}

fn choices(section: &mut Section<'_>, findings: &mut Findings) -> Vec<Choice> {
    let place = section.place("options");
    let items = section.list("options", "a list of texts or {value, label}", findings);
    if items.is_empty() {
        let message = "an enum needs its values; add options: [first, second]";
        findings.wrong(place, "missing_parameter", message);
    }
    let mut choices: Vec<Choice> = Vec::new();
    for (place, item) in items {
        let (value, label) = match item {
            Value::Object(object) => {
                let mut each = Section::new(place.clone(), object);
                let value = each.required_text("value", "metric", findings);
                let label = each.text("label", findings);
                each.close(findings);
                (value, label)
            }
            item => (text_of(item, &place, "each value", findings), None),
        };
        let Some(value) = value else { continue };
        if choices.iter().any(|other| other.value == value) {
            let message = format!("the value '{value}' is given twice; remove one");
            findings.wrong(place, "repeated", message);
            continue;
        }
        let label = label.unwrap_or_else(|| value.clone());
        choices.push(Choice { value, label });
    }
    choices
}

fn schema(section: &mut Section<'_>, findings: &mut Findings) -> Option<Value> {
    let place = section.place("schema");
    let schema = section.get("schema")?;
    if !schema.is_object() {
        findings.mismatch(&place, "schema", "a JSON Schema as a mapping", schema);
        return None;
    }
    if let Err(errors) = Schema::compile(schema) {
        for problem in errors.problems {
            let pointer = format!("{place}{}", problem.pointer);
            findings.wrong(pointer, problem.code.as_str(), problem.message);
        }
    }
    Some(schema.clone())
}

fn scopes(
    section: &mut Section<'_>,
    kind: Option<&OptionKind>,
    findings: &mut Findings,
) -> Vec<OptionScope> {
    let mut scopes = Vec::new();
    for (place, text) in section.texts("scopes", "a list of service, project", findings) {
        let scope = match text.as_str() {
            "service" => OptionScope::Service,
            "project" if kind.is_some_and(OptionKind::is_secret) => {
                let message = "a secret belongs to the service; write scopes: [service]";
                findings.wrong(place, "not_in_enum", message);
                continue;
            }
            "project" => OptionScope::Project,
            _ => {
                let message = format!("there is no scope '{text}'; write service or project");
                findings.wrong(place, "not_in_enum", message);
                continue;
            }
        };
        if !scopes.contains(&scope) {
            scopes.push(scope);
        }
    }
    if scopes.is_empty() {
        scopes.push(OptionScope::Service);
    }
    scopes
}

/// Reads `deprecated`, a reason or a flag.
fn deprecated(section: &mut Section<'_>, findings: &mut Findings) -> Option<String> {
    let place = section.place("deprecated");
    match section.get("deprecated")? {
        Value::Bool(is_deprecated) => is_deprecated.then(String::new),
        Value::String(reason) => Some(reason.clone()),
        other => {
            findings.mismatch(&place, "deprecated", "a reason, or true or false", other);
            None
        }
    }
}

fn check_default(kind: &OptionKind, default: &Value, place: &str, findings: &mut Findings) {
    let place = format!("{place}/default");
    if kind.is_secret() {
        let message =
            "a secret has no default, as every reader of the plugin would know it; remove it";
        return findings.wrong(place, "secret_default", message);
    }
    for mut violation in check::problems(kind, default, &place) {
        violation.message.insert_str(0, "the default ");
        findings.add(violation);
    }
}
