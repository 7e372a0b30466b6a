//! What models get wrong in a format that they were trained on.

use call_text::FinishReason;
use serde_json::Value;

use super::Meant;
use super::families::Family;

/// A text with a slip.
pub(super) struct Text {
    pub(super) text: String,
    pub(super) finish: FinishReason,
    /// The calls that are meant, where they are others than those written.
    pub(super) meant: Option<Vec<Meant>>,
}

fn ended(text: impl Into<String>, finish: FinishReason) -> Text {
    Text {
        text: text.into(),
        finish,
        meant: None,
    }
}

/// A slip: the texts that it makes of some calls, and why the model stopped in each.
pub(super) struct Slip {
    pub(super) name: &'static str,
    pub(super) make: fn(&Family, &[Meant]) -> Vec<Text>,
}

pub(super) static SLIPS: &[Slip] = &[
    Slip {
        name: "unclosed",
        make: unclosed,
    },
    Slip {
        name: "a doubled mark",
        make: doubled,
    },
    Slip {
        name: "a dropped mark",
        make: dropped,
    },
    Slip {
        name: "cut at the limit",
        make: cut,
    },
    Slip {
        name: "a wrong name",
        make: wrong_name,
    },
    Slip {
        name: "a raw line break",
        make: raw_line_break,
    },
    Slip {
        name: "text around",
        make: text_around,
    },
    Slip {
        name: "two calls",
        make: two_calls,
    },
    Slip {
        name: "thought before",
        make: thought_before,
    },
    Slip {
        name: "a fence round it",
        make: fenced,
    },
    Slip {
        name: "a foreign mark inside a value",
        make: foreign_mark,
    },
];

fn stopped(text: impl Into<String>) -> Vec<Text> {
    vec![ended(text, FinishReason::Stop)]
}

/// The marks of a text: its tags, special tokens and words in brackets.
fn marks(text: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(start) = text[at..].find(['<', '[']).map(|offset| at + offset) {
        let close = if text[start..].starts_with('<') {
            '>'
        } else {
            ']'
        };
        let Some(end) = text[start..].find(close).map(|offset| start + offset + 1) else {
            break;
        };
        let mark = &text[start..end];
        let inner = &mark[1..mark.len() - 1];
        let is_mark = close == '>' && inner != "b" && !inner.contains(['\n', '"'])
            || inner.chars().all(|c| c.is_ascii_uppercase() || c == '_');
        if is_mark {
            found.push((start, end));
        }
        at = if is_mark { end } else { start + 1 };
    }
    found
}

fn without_last_mark(text: &str) -> String {
    match marks(text).last() {
        Some((start, end)) if *end == text.trim_end().len() => text[..*start].to_owned(),
        _ => text[..text.len() - 1].to_owned(),
    }
}

fn unclosed(family: &Family, meant: &[Meant]) -> Vec<Text> {
    let text = without_last_mark(&(family.write)(meant));
    vec![
        ended(text.clone(), FinishReason::Stop),
        ended(text, FinishReason::Unknown),
    ]
}

fn doubled(family: &Family, meant: &[Meant]) -> Vec<Text> {
    let text = (family.write)(meant);
    let doubled = marks(&text).into_iter();
    let doubled = doubled.map(|(start, end)| format!("{}{}", &text[..end], &text[start..]));
    doubled
        .map(|text| ended(text, FinishReason::Stop))
        .collect()
}

fn dropped(family: &Family, meant: &[Meant]) -> Vec<Text> {
    let text = (family.write)(meant);
    let dropped = marks(&text).into_iter().skip(1);
    let dropped = dropped.map(|(start, end)| format!("{}{}", &text[..start], &text[end..]));
    dropped
        .map(|text| ended(text, FinishReason::Stop))
        .collect()
}

fn cut(family: &Family, meant: &[Meant]) -> Vec<Text> {
    // A call that is not begun is not cut, and a beginning of fewer bytes is no mark or no name yet.
    let meant = &meant[..1];
    let text = (family.write)(meant);
    let shortest = if text.starts_with("```") { 20 } else { 12 };
    let places = (shortest..text.len()).filter(|at| text.is_char_boundary(*at));
    let cut = places.map(|at| Text {
        meant: Some(meant.to_vec()),
        ..ended(&text[..at], FinishReason::Length)
    });
    cut.collect()
}

fn wrong_name(family: &Family, meant: &[Meant]) -> Vec<Text> {
    let text = (family.write)(meant);
    stopped(
        text.replace("get_weather", "get_the_weather")
            .replace("write_note", "writenotes")
            .replace("get_time", "get_tim"),
    )
}

fn raw_line_break(family: &Family, meant: &[Meant]) -> Vec<Text> {
    stopped((family.write)(meant).replace("\\n", "\n"))
}

fn text_around(family: &Family, meant: &[Meant]) -> Vec<Text> {
    let text = (family.write)(meant);
    // Prose behind a fence makes an example of it (A7).
    let fenced = text.starts_with("```");
    let around = [
        format!("Let me look.\n\n{text}"),
        format!("{text}\n\nDone."),
        format!("I look.\n{text}\nI looked."),
    ];
    let kept = around.into_iter().filter(|_| !fenced);
    kept.map(|text| ended(text, FinishReason::Stop)).collect()
}

fn two_calls(family: &Family, meant: &[Meant]) -> Vec<Text> {
    let text = (family.write)(meant);
    stopped(format!("{text}\n{text}"))
}

fn thought_before(family: &Family, meant: &[Meant]) -> Vec<Text> {
    let text = (family.write)(meant);
    let thoughts = [
        format!("<think>I need {text} perhaps.</think>\n\n{text}"),
        format!("I need it.\n</think>\n\n{text}"),
    ];
    thoughts.map(|text| ended(text, FinishReason::Stop)).into()
}

fn fenced(family: &Family, meant: &[Meant]) -> Vec<Text> {
    let text = (family.write)(meant);
    match text.starts_with("```") {
        true => stopped(text),
        false => ["", "json", "xml"]
            .map(|word| ended(format!("```{word}\n{text}\n```"), FinishReason::Stop))
            .into(),
    }
}

const FOREIGN: [&str; 12] = [
    "</tool_call>",
    "<tool_call>",
    "</arg_value>",
    "<arg_key>",
    "<｜tool▁call▁end｜>",
    "<|call|>",
    "<|tool_call_end|>",
    "[TOOL_CALLS]",
    "</parameter>",
    "</invoke>",
    "<ACTION>",
    "\"}}",
];

fn foreign_mark(family: &Family, meant: &[Meant]) -> Vec<Text> {
    let mut texts = Vec::new();
    for mark in FOREIGN {
        let mut meant = meant.to_vec();
        for (_, arguments) in &mut meant {
            for value in arguments
                .as_object_mut()
                .into_iter()
                .flatten()
                .map(|(_, value)| value)
            {
                if let Value::String(text) = value {
                    *text = format!("{text} {mark} end");
                }
            }
        }
        let written = ended((family.write)(&meant), FinishReason::Stop);
        texts.push(Text {
            meant: Some(meant),
            ..written
        });
    }
    texts
}
