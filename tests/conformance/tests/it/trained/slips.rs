//! The mistakes of models in a format that they were trained on.

use call_text::FinishReason;
use serde_json::Value;

use conformance::families::Family;
use conformance::pieces::Meant;

/// A text with a slip.
pub(super) struct Text {
    pub(super) text: String,
    pub(super) finish: FinishReason,
    /// The intended calls, where they differ from the written ones.
    pub(super) meant: Option<Vec<Meant>>,
}

fn ended(text: impl Into<String>, finish: FinishReason) -> Text {
    Text {
        text: text.into(),
        finish,
        meant: None,
    }
}

/// A slip: its texts for some calls, each with the reason why the model stopped.
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

fn unclosed(family: &Family, meant: &[Meant]) -> Vec<Text> {
    let mut pieces = family.pieces(meant);
    let whole = pieces.whole();
    if let Some(last) = pieces.marks().last() {
        pieces.at(*last).clear();
    }
    let open = pieces.whole();
    // If no mark ends the text, its last byte does.
    let text = match whole.starts_with(&open) && open.len() < whole.len() {
        true => open,
        false => whole[..whole.len() - 1].to_owned(),
    };
    vec![
        ended(text.clone(), FinishReason::Stop),
        ended(text, FinishReason::Unknown),
    ]
}

/// The texts with each mark changed that `may` allows.
fn changed(
    family: &Family,
    meant: &[Meant],
    times: usize,
    may: impl Fn(usize, &str) -> bool,
) -> Vec<Text> {
    let pieces = family.pieces(meant);
    let texts = pieces.marks().into_iter().filter_map(|at| {
        let mut pieces = pieces.clone();
        if !may(at, pieces.at(at)) {
            return None;
        }
        *pieces.at(at) = pieces.at(at).repeat(times);
        Some(ended(pieces.whole(), FinishReason::Stop))
    });
    texts.collect()
}

fn doubled(family: &Family, meant: &[Meant]) -> Vec<Text> {
    changed(family, meant, 2, |_, _| true)
}

fn dropped(family: &Family, meant: &[Meant]) -> Vec<Text> {
    // A call without arguments vanishes if its one tag with its name is missing.
    let bare = |mark: &str| {
        let mut calls = meant.iter().filter(|(_, arguments)| arguments.is_empty());
        calls.any(|(name, _)| mark.contains(name.as_str()))
    };
    changed(family, meant, 0, |at, mark| at > 0 && !bare(mark))
}

fn cut(family: &Family, meant: &[Meant]) -> Vec<Text> {
    // A call that is not begun is not cut, and a beginning of fewer bytes is no mark or no name yet.
    let meant = &meant[..1];
    let text = family.text(meant);
    let shortest = if text.starts_with("```") { 20 } else { 12 };
    let places = (shortest..text.len()).filter(|at| text.is_char_boundary(*at));
    let cut = places.map(|at| Text {
        meant: Some(meant.to_vec()),
        ..ended(&text[..at], FinishReason::Length)
    });
    cut.collect()
}

fn wrong_name(family: &Family, meant: &[Meant]) -> Vec<Text> {
    let text = family.text(meant);
    stopped(
        text.replace("get_weather", "get_the_weather")
            .replace("write_note", "writenotes")
            .replace("get_time", "get_tim"),
    )
}

fn raw_line_break(family: &Family, meant: &[Meant]) -> Vec<Text> {
    stopped(family.text(meant).replace("\\n", "\n"))
}

fn text_around(family: &Family, meant: &[Meant]) -> Vec<Text> {
    let text = family.text(meant);
    // Prose behind a fence turns it into an example (A7).
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
    let text = family.text(meant);
    stopped(format!("{text}\n{text}"))
}

fn thought_before(family: &Family, meant: &[Meant]) -> Vec<Text> {
    let text = family.text(meant);
    let thoughts = [
        format!("<think>I need {text} perhaps.</think>\n\n{text}"),
        format!("I need it.\n</think>\n\n{text}"),
    ];
    thoughts.map(|text| ended(text, FinishReason::Stop)).into()
}

fn fenced(family: &Family, meant: &[Meant]) -> Vec<Text> {
    let text = family.text(meant);
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
            for value in arguments.values_mut() {
                if let Value::String(text) = value {
                    *text = format!("{text} {mark} end");
                }
            }
        }
        let written = ended(family.text(&meant), FinishReason::Stop);
        texts.push(Text {
            meant: Some(meant),
            ..written
        });
    }
    texts
}
