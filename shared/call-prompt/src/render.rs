//! The writer of calls. A written call is read back as the same call, byte for byte; values that a
//! dialect cannot carry are refused.

mod elements;
mod fields;

pub(crate) use fields::field;

use call_catalogue::schema::{Schema, Types};
use call_catalogue::{Catalogue, Class, Dialect, Entry, canonical};
use call_text::{FinishReason, Policy, parse_finished};
use serde_json::{Map, Value, json};

/// The reason why a call cannot be written in a dialect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{dialect} cannot carry {}: {reason}", if path.is_empty() { "the call" } else { path })]
pub struct CannotCarry {
    /// The dialect.
    pub dialect: Dialect,
    /// JSON pointer of the argument; empty for the call as a whole.
    pub path: String,
    /// The obstacle.
    pub reason: String,
}

/// Writes a call of a visible tool as a block of a dialect.
///
/// # Errors
/// [`CannotCarry`] names the first argument that would not be read back as it is.
pub fn render_call(
    tool_id: &str,
    arguments: &Map<String, Value>,
    dialect: Dialect,
    catalogue: &Catalogue,
) -> Result<String, CannotCarry> {
    let block = render_unchecked(tool_id, arguments, dialect, catalogue)?;
    if dialect == Dialect::Native {
        return Ok(block);
    }
    check(&block, tool_id, arguments, dialect, catalogue).map_err(|(path, reason)| {
        CannotCarry {
            dialect,
            path,
            reason,
        }
    })?;
    Ok(block)
}

/// Writes a call as an ACTION block whose lists and objects are elements; `None` where it would not
/// be read back as it is.
pub(crate) fn render_in_elements(
    entry: &Entry,
    arguments: &Map<String, Value>,
    catalogue: &Catalogue,
) -> Option<String> {
    let schema = Schema::root(&entry.tool.parameters);
    let block = elements::action_in_elements(&entry.alias, arguments, schema).ok()?;
    let read = check(
        &block,
        &entry.tool.id,
        arguments,
        Dialect::Action,
        catalogue,
    );
    read.is_ok().then_some(block)
}

/// Writes a call whose arguments need not fit the tool's schema.
pub(crate) fn render_unchecked(
    tool_id: &str,
    arguments: &Map<String, Value>,
    dialect: Dialect,
    catalogue: &Catalogue,
) -> Result<String, CannotCarry> {
    let refuse = |path: &str, reason: &str| CannotCarry {
        dialect,
        path: path.to_owned(),
        reason: reason.to_owned(),
    };
    let Some(entry) = catalogue.entry_of(tool_id) else {
        return Err(refuse("", "the tool is not visible"));
    };
    let schema = Schema::root(&entry.tool.parameters);
    let block = match dialect {
        Dialect::Action => elements::action(&entry.alias, arguments, schema),
        Dialect::ToolTag => elements::tool_tag(&entry.alias, arguments, schema),
        Dialect::ToolJson => {
            let object = json!({"name": tool_id, "arguments": arguments});
            Ok(format!("<tool_call>\n{object}\n</tool_call>"))
        }
        Dialect::Native => return Ok(json!({"name": tool_id, "arguments": arguments}).to_string()),
        Dialect::TamV1 | Dialect::TamV2 | Dialect::Vcp => {
            Ok(fields::block(entry, arguments, schema, dialect))
        }
    };
    block.map_err(|(path, reason)| refuse(&path, &reason))
}

/// Writes an argument as part of a call in a dialect that is written into text, without the
/// separator to the next.
pub(crate) fn parameter(
    entry: &Entry,
    name: &str,
    value: &Value,
    dialect: Dialect,
) -> Result<String, elements::Refusal> {
    let schema = Schema::root(&entry.tool.parameters);
    match dialect {
        Dialect::Action => elements::parameter(name, value, schema),
        dialect if dialect.is_field_based() => {
            Ok(fields::parameter(entry, name, value, schema, dialect))
        }
        _ => elements::tag_parameter(name, value, schema),
    }
}

/// Reads the block back; the first argument that came out differently is named.
fn check(
    block: &str,
    tool_id: &str,
    arguments: &Map<String, Value>,
    dialect: Dialect,
    catalogue: &Catalogue,
) -> Result<(), (String, String)> {
    let parsed = parse_finished(
        block,
        catalogue,
        &Policy::fixed(dialect),
        FinishReason::Stop,
    );
    let whole = |reason: &str| Err((String::new(), reason.to_owned()));
    let [call] = parsed.calls.as_slice() else {
        return whole("it is not read back as one call");
    };
    if let Some(problem) = parsed.problems().next() {
        return Err((problem.path.clone(), problem.message.clone()));
    }
    for (name, value) in arguments {
        if call.arguments.get(name).map(canonical::value) != Some(canonical::value(value)) {
            return Err((
                format!("/{name}"),
                "the value is not read back as it was".to_owned(),
            ));
        }
    }
    let exact = call
        .tolerances
        .iter()
        .all(|tolerance| tolerance.class == Class::Verbatim)
        && !call.ambiguous;
    if call.tool_id != tool_id || call.arguments.len() != arguments.len() || !exact {
        return whole("it is not read back exactly");
    }
    Ok(())
}

/// The text of a value: strings as they are, everything else as compact JSON.
fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Whether a schema reads text back as anything but this value's type.
fn is_plain_string(value: &Value, schema: Schema<'_>) -> bool {
    let types = schema.types();
    value.is_string() && (types.is_any() || types.has(Types::STRING) || schema.allowed().is_some())
}

#[cfg(test)]
mod tests;
