//! ACTION and tag blocks, written through quick-xml.

use std::io::Write;

use call_catalogue::schema::Schema;
use quick_xml::Writer;
use quick_xml::events::{BytesCData, BytesEnd, BytesStart, BytesText, Event};
use serde_json::{Map, Value};

use super::{is_plain_string, text_of};

/// The JSON pointer of an argument, and the reason why it cannot be written.
pub(crate) type Refusal = (String, String);

/// `<ACTION>` with one call.
pub(super) fn action(
    name: &str,
    arguments: &Map<String, Value>,
    schema: Schema<'_>,
) -> Result<String, Refusal> {
    in_action(name, arguments, |out, key, value| {
        out.push_str("        ");
        out.push_str(&parameter(key, value, schema)?);
        out.push('\n');
        Ok(())
    })
}

/// `<ACTION>` with one call, its lists and objects as elements: lists as repeated `<item>`, as the
/// rules of the dialect have models write them.
pub(super) fn action_in_elements(
    name: &str,
    arguments: &Map<String, Value>,
    schema: Schema<'_>,
) -> Result<String, Refusal> {
    in_action(name, arguments, |out, key, value| {
        nested(out, key, value, schema.member(key), 2)
    })
}

/// Writes `<ACTION>` with one call, each argument by `write`.
fn in_action(
    name: &str,
    arguments: &Map<String, Value>,
    mut write: impl FnMut(&mut String, &str, &Value) -> Result<(), Refusal>,
) -> Result<String, Refusal> {
    let mut out = format!("<ACTION>\n    <{name}>\n");
    for (key, value) in arguments {
        write(&mut out, key, value)?;
    }
    out.push_str(&format!("    </{name}>\n</ACTION>"));
    Ok(out)
}

/// Writes a value as an element on lines of its own.
fn nested(
    out: &mut String,
    name: &str,
    value: &Value,
    schema: Schema<'_>,
    depth: usize,
) -> Result<(), Refusal> {
    check_name(name)?;
    let indentation = "    ".repeat(depth);
    let parts: Vec<(&str, &Value, Schema<'_>)> = match value {
        Value::Array(items) => {
            let item = |item| ("item", item, schema.items());
            items.iter().map(item).collect()
        }
        Value::Object(members) => {
            let member = |(name, value)| (name, value, schema.member(name));
            let members = members.iter().map(|(name, value)| (name.as_str(), value));
            members.map(member).collect()
        }
        _ => Vec::new(),
    };
    out.push_str(&indentation);
    if parts.is_empty() {
        let written = value_element(BytesStart::new(name), value, schema);
        out.push_str(&written.map_err(|error| (format!("/{name}"), error.to_string()))?);
    } else {
        out.push_str(&format!("<{name}>\n"));
        for (name, value, schema) in parts {
            nested(out, name, value, schema, depth + 1)?;
        }
        out.push_str(&format!("{indentation}</{name}>"));
    }
    out.push('\n');
    Ok(())
}

/// `<tool_call name="…">` with one call.
pub(super) fn tool_tag(
    name: &str,
    arguments: &Map<String, Value>,
    schema: Schema<'_>,
) -> Result<String, Refusal> {
    let mut out = format!("<tool_call name=\"{name}\">\n");
    for (key, value) in arguments {
        out.push_str("    ");
        out.push_str(&tag_parameter(key, value, schema)?);
        out.push('\n');
    }
    out.push_str("</tool_call>");
    Ok(out)
}

/// `<key>` with a value.
pub(super) fn parameter(key: &str, value: &Value, schema: Schema<'_>) -> Result<String, Refusal> {
    check_name(key)?;
    element(BytesStart::new(key), key, value, schema)
}

/// `<param name="key">` with a value.
pub(super) fn tag_parameter(
    key: &str,
    value: &Value,
    schema: Schema<'_>,
) -> Result<String, Refusal> {
    check_name(key)?;
    let mut start = BytesStart::new("param");
    start.push_attribute(("name", key));
    element(start, key, value, schema)
}

/// Checks a parameter name that is written into a tag unchanged.
fn check_name(key: &str) -> Result<(), Refusal> {
    let bad =
        |c: char| c.is_whitespace() || c.is_control() || "<>/=\"'&＜＞`{};,()!?|[".contains(c);
    if key.is_empty() || key.len() > 128 || key.contains(bad) {
        return Err((
            format!("/{key}"),
            "the parameter's name cannot be a tag".to_owned(),
        ));
    }
    Ok(())
}

fn element(
    start: BytesStart<'_>,
    key: &str,
    value: &Value,
    schema: Schema<'_>,
) -> Result<String, Refusal> {
    let written = value_element(start, value, schema.member(key));
    written.map_err(|error| (format!("/{key}"), error.to_string()))
}

/// An element with the text of a value.
fn value_element(
    start: BytesStart<'_>,
    value: &Value,
    schema: Schema<'_>,
) -> std::io::Result<String> {
    let text = text_of(value);
    let plain = is_plain_string(value, schema);
    write(start, &text, plain, !schema.preserves_white_space())
}

fn write(
    start: BytesStart<'_>,
    text: &str,
    is_string: bool,
    frames: bool,
) -> std::io::Result<String> {
    let mut writer = Writer::new(Vec::new());
    let end = BytesEnd::from(start.name()).into_owned();
    writer.write_event(Event::Start(start.borrow()))?;
    let outer_space = text.trim() != text;
    let broken = text.contains('\n');
    if is_string
        && (broken || outer_space || text.contains(['<', '&', '>']) || text.contains("]]>"))
        || (!is_string && text.contains(['<', '&']))
    {
        // One line break inside each end of CDATA belongs to the writing (V5); it protects the line
        // breaks of the value. Round blanks it would be part of the value (V10).
        let framed = if broken && frames && !text.trim().is_empty() {
            format!("\n{text}\n")
        } else {
            text.to_owned()
        };
        for part in parts(&framed) {
            for section in BytesCData::escaped(part) {
                writer.write_event(Event::CData(section))?;
            }
        }
    } else {
        writer.write_event(Event::Text(BytesText::from_escaped(text)))?;
    }
    writer.write_event(Event::End(end))?;
    writer.get_mut().flush()?;
    String::from_utf8(writer.into_inner()).map_err(std::io::Error::other)
}

/// The text cut inside every `<![CDATA[`, so that no section seems to open inside another.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    const OPENER: &str = "<![CDATA[";
    let cuts = text.match_indices(OPENER).map(|(at, _)| at + "<![".len());
    let ends = cuts.chain([text.len()]);
    ends.scan(0, |from, end| {
        Some(&text[std::mem::replace(from, end)..end])
    })
}
