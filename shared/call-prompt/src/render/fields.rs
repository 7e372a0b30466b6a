//! TAM and VCP blocks.

use call_catalogue::schema::Schema;
use call_catalogue::{Dialect, Entry};
use serde_json::{Map, Value};

use super::text_of;

const PROTOCOL_WORDS: &[&str] = &[
    "「始",
    "「末",
    "{始",
    "{末",
    "»»»",
    "«««",
    "TOOL_REQUEST",
    "REQUEST_TOOL",
    "END_TOOL",
];

/// A block with one call.
pub(super) fn block(
    entry: &Entry,
    arguments: &Map<String, Value>,
    schema: Schema<'_>,
    dialect: Dialect,
) -> String {
    let (open, close, separator) = match dialect {
        Dialect::Vcp => ("<<<[TOOL_REQUEST]>>>", "<<<[END_TOOL_REQUEST]>>>", ","),
        _ => ("<|[REQUEST_TOOL]|>", "<|[END_TOOL]|>", ""),
    };
    let command = if dialect == Dialect::Vcp {
        "tool_name"
    } else {
        "command"
    };
    let mut out = format!("{open}\n");
    out.push_str(&field(command, &entry.tool.id, false, dialect));
    for (name, value) in arguments {
        out.push_str(separator);
        out.push('\n');
        out.push_str(&parameter(entry, name, value, schema, dialect));
    }
    out.push('\n');
    out.push_str(close);
    out
}

/// The field of a parameter.
pub(super) fn parameter(
    entry: &Entry,
    name: &str,
    value: &Value,
    schema: Schema<'_>,
    dialect: Dialect,
) -> String {
    // TAM has no spelling for a parameter called `command` (T19).
    let alias = entry.command_alias && name == "command" && dialect != Dialect::Vcp;
    let key = if alias { "arg_command" } else { name };
    let preserves = schema.member(name).preserves_white_space();
    field(key, &text_of(value), preserves, dialect)
}

/// A field with a text as its value.
pub(crate) fn field(key: &str, text: &str, preserves: bool, dialect: Dialect) -> String {
    // A line break inside each delimiter belongs to the writing (T16), except where all white space
    // belongs to the value, as in a value of white space only (V10).
    let framed = if text.contains('\n') && !preserves && !text.trim().is_empty() {
        format!("\n{text}\n")
    } else {
        text.to_owned()
    };
    if PROTOCOL_WORDS.iter().any(|word| text.contains(word)) {
        return format!("{key}:「始ESCAPE」{framed}「末ESCAPE」");
    }
    match dialect {
        Dialect::TamV2 => format!("{key}:»»»{framed}«««"),
        _ => format!("{key}:「始」{framed}「末」"),
    }
}
