//! JSON as models spell it (F8): with raw line breaks in strings, commas before a closing bracket, and the words of
//! Python.

use serde_json::Value;

use super::parse;

/// A spelling that is no JSON and can only mean one thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slip {
    /// Stable machine-readable code in snake case.
    pub code: &'static str,
    /// The spelling as written.
    pub before: &'static str,
    /// The spelling of JSON.
    pub after: &'static str,
}

const LINE_BREAK: Slip = Slip {
    code: "raw_line_break",
    before: "a raw line break",
    after: "\\n",
};
const CONTROL: Slip = Slip {
    code: "raw_control_character",
    before: "a raw control character",
    after: "its escape",
};
const COMMA: Slip = Slip {
    code: "trailing_comma",
    before: ",",
    after: "",
};
const WORDS: [(&str, Slip); 3] = [
    ("True", python("True", "true")),
    ("False", python("False", "false")),
    ("None", python("None", "null")),
];

const fn python(before: &'static str, after: &'static str) -> Slip {
    Slip {
        code: "python_word",
        before,
        after,
    }
}

/// Parses JSON, also in common other spellings; reports each kind of slip once.
pub fn parse_spelled(text: &str) -> Result<(Value, Vec<Slip>), serde_json::Error> {
    let error = match parse(text) {
        Ok(value) => return Ok((value, Vec::new())),
        Err(error) => error,
    };
    let (normal, slips) = normalise(text);
    match parse(&normal) {
        Ok(value) if !slips.is_empty() => Ok((value, slips)),
        _ => Err(error),
    }
}

/// The text in the spelling of JSON, and the slips of the original.
fn normalise(text: &str) -> (String, Vec<Slip>) {
    let (mut normal, mut slips) = (String::with_capacity(text.len() + 16), Vec::new());
    let mut rest = text;
    let mut in_string = false;
    let mut note = |slip: Slip| {
        if !slips.contains(&slip) {
            slips.push(slip);
        }
    };
    while let Some(c) = rest.chars().next() {
        let mut width = c.len_utf8();
        match c {
            '"' => {
                in_string = !in_string;
                normal.push(c);
            }
            '\\' if in_string => {
                let escaped = rest[width..].chars().next().map_or(0, char::len_utf8);
                normal.push_str(&rest[..width + escaped]);
                width += escaped;
            }
            '\n' if in_string => {
                note(LINE_BREAK);
                normal.push_str("\\n");
            }
            '\u{0}'..='\u{1f}' if in_string => {
                note(if c == '\r' { LINE_BREAK } else { CONTROL });
                normal.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            ',' if !in_string && rest[width..].trim_start().starts_with(['}', ']']) => note(COMMA),
            'T' | 'F' | 'N' if !in_string => {
                match WORDS.iter().find(|(word, _)| rest.starts_with(word)) {
                    Some((word, slip)) => {
                        note(*slip);
                        normal.push_str(slip.after);
                        width = word.len();
                    }
                    None => normal.push(c),
                }
            }
            _ => normal.push(c),
        }
        rest = &rest[width..];
    }
    (normal, slips)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_of_spelling_are_read_and_named() {
        for (text, value, codes) in [
            (
                r#"{"a": [1, 2,], "b": {"c": 1,},}"#,
                r#"{"a":[1,2],"b":{"c":1}}"#,
                &["trailing_comma"][..],
            ),
            ("{\"a\": \"x\ny\"}", r#"{"a":"x\ny"}"#, &["raw_line_break"]),
            (
                "{\"a\": \"x\ty\"}",
                r#"{"a":"x\ty"}"#,
                &["raw_control_character"],
            ),
            (
                r#"{"a": True, "b": None, "c": "None, True,]"}"#,
                r#"{"a":true,"b":null,"c":"None, True,]"}"#,
                &["python_word", "python_word"],
            ),
            (r#"{"a": "\", ]"}"#, r#"{"a":"\", ]"}"#, &[]),
        ] {
            let (read, slips) = parse_spelled(text).unwrap();
            assert_eq!(read.to_string(), value);
            assert_eq!(
                slips.iter().map(|slip| slip.code).collect::<Vec<_>>(),
                codes,
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_more_than_a_slip_stays_wrong() {
        for text in [
            r#"{"a": 1"#,
            "{a: 1}",
            "{'a': 1}",
            r#"{"a": Truex}"#,
            r#"{"a": 1, "a": 2,}"#,
        ] {
            assert!(parse_spelled(text).is_err(), "{text}");
        }
    }
}
