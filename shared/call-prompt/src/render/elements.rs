//! ACTION and tag blocks, written through quick-xml.

use std::io::Write;

use call_catalogue::schema::Schema;
use quick_xml::Writer;
use quick_xml::events::{BytesCData, BytesEnd, BytesStart, BytesText, Event};
use serde_json::{Map, Value};

use super::{is_plain_string, text_of};

/// The JSON pointer of an argument, and why it cannot be written.
pub(crate) type Refusal = (String, String);

/// `<ACTION>` with one call.
pub(super) fn action(
    name: &str,
    arguments: &Map<String, Value>,
    schema: Schema<'_>,
) -> Result<String, Refusal> {
    let mut out = format!("<ACTION>\n    <{name}>\n");
    for (key, value) in arguments {
        out.push_str("        ");
        out.push_str(&parameter(key, value, schema)?);
        out.push('\n');
    }
    out.push_str(&format!("    </{name}>\n</ACTION>"));
    Ok(out)
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

/// A parameter name that stands in a tag as it is.
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
    let text = text_of(value);
    let schema = schema.member(key);
    let plain = is_plain_string(value, schema);
    let frames = !schema.preserves_white_space();
    write(start, &text, plain, frames).map_err(|error| (format!("/{key}"), error.to_string()))
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
        // One line break inside each end of CDATA belongs to the writing (V5); it protects those of
        // the value.
        let framed = if broken && frames {
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
