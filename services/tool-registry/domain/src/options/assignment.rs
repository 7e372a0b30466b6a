//! Values of options as `key=value`, for a command line.

use call_outcome::Violation;
use json_schema::{JsonLimits, parse_json_strict_with, pointer::join};
use serde_json::{Map, Number, Value};

use super::{
    MAX_TEXT_BYTES, check,
    kind::{OptionDeclaration, OptionKind},
    values::find,
};

/// Reads assignments such as `units=metric`, with the whole key of an option or its name, by the
/// declared type:
///
/// - `string` and `text` take the value as it is;
/// - `integer`, `number` and `boolean` take a number, `true` or `false`;
/// - `enum` takes one of its values;
/// - `string_list` takes a JSON list, or texts between commas;
/// - `json` takes JSON.
///
/// Nothing behind the `=` means null, which unsets an option; for `string` and `text` it is the
/// empty text. Secrets are refused, as a command line is seen by other processes.
///
/// # Errors
/// All problems, each with a JSON pointer into the values: unknown and repeated keys, texts of another
/// type, and values that break a bound.
pub fn parse(
    declared: &[OptionDeclaration],
    assignments: &[&str],
) -> Result<Map<String, Value>, Vec<Violation>> {
    let mut values = Map::new();
    let mut wrong = Vec::new();
    for text in assignments {
        match parse_one(declared, text) {
            Ok((option, value)) => {
                let pointer = join("", &option.key);
                if !value.is_null() {
                    wrong.append(&mut check::problems(&option.kind, &value, &pointer));
                }
                if values.insert(option.key.clone(), value).is_some() {
                    let message = format!("{} is given twice; remove one", option.key);
                    wrong.push(Violation::new(pointer, "repeated", message));
                }
            }
            Err(violation) => wrong.push(*violation),
        }
    }
    match wrong.is_empty() {
        true => Ok(values),
        false => Err(wrong),
    }
}

fn parse_one<'a>(
    declared: &'a [OptionDeclaration],
    text: &str,
) -> Result<(&'a OptionDeclaration, Value), Box<Violation>> {
    let Some((key, value)) = text.split_once('=') else {
        let shown = json_schema::violation::cut(text, 80);
        let message = format!("'{shown}' has no '='; write it as key=value");
        return Err(Box::new(Violation::new("", "no_assignment", message)));
    };
    let option = find(declared, key.trim())?;
    let pointer = join("", &option.key);
    let value = typed(&option.kind, value)
        .map_err(|(code, problem)| Box::new(Violation::new(pointer, code, problem)))?;
    Ok((option, value))
}

type Problem = (&'static str, String);

fn typed(kind: &OptionKind, text: &str) -> Result<Value, Problem> {
    let mismatch = |wanted: &str| {
        let shown = json_schema::violation::cut(text, 80);
        let message = format!("'{shown}' is not {wanted}");
        Err(("type_mismatch", message))
    };
    match kind {
        OptionKind::Line(_) | OptionKind::Text(_) => Ok(Value::from(text)),
        OptionKind::Secret { .. } => {
            let message = "a secret is not taken from a command line, which other processes see; put \
                           it into a file or a variable of the service";
            Err(("secret_on_command_line", message.to_owned()))
        }
        _ if text.is_empty() => Ok(Value::Null),
        OptionKind::Integer { .. } => match text.trim().parse::<i64>() {
            Ok(whole) => Ok(Value::from(whole)),
            Err(_) => mismatch("a whole number of 64 bits; write digits only"),
        },
        OptionKind::Number { .. } => match text.trim().parse::<Number>() {
            Ok(number) => Ok(Value::Number(number)),
            Err(_) => mismatch("a number; write it like 2.5"),
        },
        OptionKind::Boolean => match text.trim() {
            "true" => Ok(Value::Bool(true)),
            "false" => Ok(Value::Bool(false)),
            _ => mismatch("true or false"),
        },
        OptionKind::Enum { .. } => Ok(Value::from(text)),
        OptionKind::List(_) if text.trim_start().starts_with('[') => json(text),
        OptionKind::List(_) => Ok(text
            .split(',')
            .map(|item| Value::from(item.trim()))
            .collect()),
        OptionKind::Json { .. } => json(text),
    }
}

fn json(text: &str) -> Result<Value, Problem> {
    let limits = JsonLimits {
        max_bytes: MAX_TEXT_BYTES,
        ..JsonLimits::default()
    };
    parse_json_strict_with(text, &limits).map_err(|error| {
        let problems: Vec<String> = error.problems.iter().map(ToString::to_string).collect();
        (
            "malformed_json",
            format!("is not JSON: {}", problems.join("; ")),
        )
    })
}
