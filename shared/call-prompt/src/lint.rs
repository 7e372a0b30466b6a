//! Placeholders in the place of real values (T35): in model text, and in the examples of a tool,
//! which models copy verbatim.
//!
//! None of this is a matter of parsing: the calls stay unchanged, and a remark names the
//! placeholder.

use call_catalogue::schema::Schema;
use call_catalogue::{Catalogue, Diagnostic, Rule, Severity, Span};
use call_text::Call;
use serde_json::Value;

/// The values of a call that were copied from its tool's manual instead of being made up: the
/// description of the parameter, the words of the worked example, or an example that is a
/// placeholder itself. One remark each, at the argument.
pub fn placeholders(call: &Call, catalogue: &Catalogue) -> Vec<Diagnostic> {
    let Some(tool) = catalogue.tool(&call.tool_id) else {
        return Vec::new();
    };
    let schema = Schema::root(&tool.parameters);
    let copied = call.arguments.iter().filter_map(|(name, value)| {
        let written = value.as_str()?;
        let copied = is_copied(name, written, schema.member(name));
        copied.then_some((name, written))
    });
    let place = |name: &str| {
        let mut raw = call.raw_arguments.iter();
        let raw = raw.find(|argument| &*argument.name == name);
        raw.map_or(Span::default(), |argument| argument.span)
    };
    copied
        .map(|(name, written)| Diagnostic {
            rule: Rule::T35,
            class: None,
            severity: Severity::Warning,
            code: "placeholder_value".to_owned(),
            span: place(name),
            message: format!(
                "Parameter '{name}' holds the placeholder of the documentation: '{}'",
                call_catalogue::cut(written)
            ),
            hint: "write the real value".to_owned(),
        })
        .collect()
}

/// The examples and defaults in a tool's parameters that are placeholders, one sentence each.
pub fn placeholder_examples(parameters: &Value) -> Vec<String> {
    let schema = Schema::root(parameters);
    let remark = |name: String| {
        let member = schema.member(&name);
        let mut given = member.examples().iter().chain(member.default());
        let given = given.find_map(|value| value.as_str().filter(|text| is_placeholder(text)))?;
        Some(format!(
            "parameter '{name}' has the example '{}', which models copy as it stands; give a real value",
            call_catalogue::cut(given)
        ))
    };
    schema
        .property_names()
        .into_iter()
        .filter_map(remark)
        .collect()
}

/// Whether a value is the manual's text about its parameter.
fn is_copied(name: &str, written: &str, schema: Schema<'_>) -> bool {
    let allowed = schema.allowed().unwrap_or_default();
    if allowed.iter().any(|value| value.as_str() == Some(written)) {
        return false;
    }
    let plain = plain(written);
    let described = !schema.description().is_empty() && plain == self::plain(schema.description());
    let mut examples = schema.examples().iter().filter_map(Value::as_str);
    let exemplary = examples.any(|example| self::plain(example) == plain);
    !plain.is_empty()
        && (described
            || plain == self::plain(&format!("your {name}"))
            || (exemplary && is_placeholder(written)))
}

/// Whether a text speaks of a value instead of being one: in angle brackets, or beginning with an
/// article or a possessive.
fn is_placeholder(text: &str) -> bool {
    const STARTS: &[&str] = &["the ", "a ", "an ", "your ", "here ", "insert ", "some "];
    const SENTENCE: usize = 48;
    let text = text.trim();
    let bracketed = text
        .strip_prefix('<')
        .and_then(|text| text.strip_suffix('>'))
        .is_some_and(|inner| !inner.contains(['<', '>', '\n']) && !inner.starts_with(['/', '!']));
    let lowered = text.to_lowercase();
    let spoken =
        lowered.ends_with(" here") || STARTS.iter().any(|start| lowered.starts_with(start));
    bracketed || (spoken && text.len() <= SENTENCE && !text.contains('\n')) || text == "..."
}

/// The form in which texts are compared: without brackets, quotes and stops round it, one space
/// between words, lower case.
fn plain(text: &str) -> String {
    let round = |c: char| c.is_whitespace() || "<>[](){}\"'`「」“”.。…".contains(c);
    let words = text
        .trim_matches(round)
        .split(|c: char| c.is_whitespace() || c == '_');
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    words.join(" ").to_lowercase()
}

#[cfg(test)]
mod tests {
    use call_catalogue::Tool;
    use call_text::{Policy, parse};
    use serde_json::json;

    use super::*;

    fn parameters() -> Value {
        json!({"properties": {
            "path": {"type": "string", "description": "The file path here."},
            "city": {"type": "string", "description": "Where.", "examples": ["Shanghai"]},
            "body": {"type": "string", "examples": ["<the text>"]},
            "mode": {"type": "string", "enum": ["your mode", "fast"]},
        }})
    }

    fn remarks(arguments: &str) -> Vec<String> {
        let catalogue = Catalogue::new(vec![Tool::new("write", "", parameters())], vec![]);
        let catalogue = catalogue.unwrap();
        let message = format!("<ACTION><write>{arguments}</write></ACTION>");
        let parsed = parse(&message, &catalogue, &Policy::default());
        let remarks = placeholders(&parsed.calls[0], &catalogue);
        let place = |remark: Diagnostic| remark.span.of(&message).to_owned();
        remarks.into_iter().map(place).collect()
    }

    #[test]
    fn words_of_the_manual_are_no_values() {
        for (arguments, copied) in [
            ("<path>the file path here</path>", "the file path here"),
            ("<path>[The file path here]</path>", "[The file path here]"),
            ("<path>your path</path>", "your path"),
            ("<body>&lt;the text&gt;</body>", "&lt;the text&gt;"),
            ("<body>The text</body>", "The text"),
        ] {
            assert_eq!(remarks(arguments), [copied], "{arguments}");
        }
    }

    #[test]
    fn real_values_are_left_alone_even_if_an_example_has_them() {
        for arguments in [
            "<path>/tmp/the file path here</path>",
            "<city>Shanghai</city>",
            "<mode>your mode</mode>",
            "<body>the text that I wrote</body>",
            "<path></path>",
        ] {
            assert_eq!(remarks(arguments), [""; 0], "{arguments}");
        }
    }

    #[test]
    fn examples_that_are_placeholders_are_named() {
        let found = placeholder_examples(&parameters());
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("'body'"));
    }
}
