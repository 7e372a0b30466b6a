//! The work grows with the text and no faster: bytes looked at per byte, counted.

use call_text::{FinishReason, Limits, Parser, Policy};
use conformance::catalogue;

/// Shapes that invite searching the same text again and again.
const SHAPES: &[(&str, &str, &str)] = &[
    ("plain words", "", "some plain words and more of them, "),
    ("opening wrappers", "", "<ACTION>"),
    ("opening wrappers and words", "", "<ACTION> x "),
    ("opened tools", "", "<ACTION><note>"),
    ("bare tools in lines", "", "<note>\n"),
    ("first marks of messages", "", "<|start|>"),
    (
        "heads of messages",
        "",
        "<|channel|>commentary to=functions.note ",
    ),
    ("calls of Llama", "", "<|python_tag|> "),
    ("calls of Llama in lines", "", "<|python_tag|>note\n"),
    ("separators of DeepSeek", "", "<｜tool▁sep｜>"),
    ("sections of DeepSeek", "", "<｜tool▁calls▁begin｜>"),
    ("calls of Kimi", "", "<|tool_call_begin|>functions.note:0"),
    ("calls of Mistral", "", "[TOOL_CALLS]note"),
    ("arguments of Mistral", "", "[ARGS]"),
    ("JSON in lines", "", "{\"type\":[\n"),
    (
        "JSON of a call in lines",
        "",
        "{\"name\":\"note\",\"arguments\":{\n",
    ),
    ("lists in lines", "", "[\n"),
    ("lists of Python", "", "[note(\n"),
    ("lists of Phi", "", "functools[\n"),
    ("calls of ReAct", "", "\nAction: note\n"),
    (
        "calls of ReAct with input",
        "",
        "\nAction: note\nAction Input:",
    ),
    ("code of Gemma", "", "```tool_code\n"),
    ("closed code of Gemma", "", "```tool_code\nx\n```\n"),
    ("calls of GLM", "", "<tool_call>note\n"),
    (
        "values of GLM",
        "<tool_call>note\n<arg_key>text</arg_key><arg_value>",
        "</arg_value> ",
    ),
    (
        "keys of GLM",
        "<tool_call>note\n",
        "<arg_key>a</arg_key><arg_value>b</arg_value>",
    ),
    (
        "arguments of Kimi",
        "<|tool_call_begin|>functions.note:0<|tool_call_argument_begin|>{",
        "{\"a\":",
    ),
    ("tags with a namespace", "", "<minimax:tool_call>"),
    (
        "parameters with a namespace",
        "<minimax:tool_call><invoke name=\"note\">",
        "<x:parameter name=\"text\">a",
    ),
    ("fences in a tag", "<tool_call>", "```"),
    ("opened values", "<ACTION><note>", "<text>"),
    (
        "closed values without end",
        "<ACTION><write>",
        "<content>a</content> ",
    ),
    (
        "closing tags and words",
        "<ACTION><write><content>",
        "</content> x ",
    ),
    (
        "closing tags and elements",
        "<ACTION><write><content>",
        "</content><b>",
    ),
    (
        "known siblings",
        "<ACTION><write>",
        "<path>a</path><content>b</content>",
    ),
    (
        "ends of calls in a value",
        "<ACTION><write><content>",
        "</write></ACTION> ",
    ),
    (
        "ends of values and calls",
        "<ACTION><write><content>",
        "</content></write> x ",
    ),
    (
        "comments in a gap",
        "<ACTION><write><content>a</content>",
        "<!-- </content> ",
    ),
    ("open comments", "", "<!-- "),
    ("cdata openings", "<ACTION><note><text>", "<![CDATA["),
    ("cdata ends", "<ACTION><note><text><![CDATA[", "]]> "),
    (
        "closings in cdata",
        "<ACTION><write><content><![CDATA[",
        "</content></write></ACTION>",
    ),
    ("attributes", "<ACTION>", "<note a=\"b\" c=\"d\">"),
    ("open quotes", "", "<note a=\""),
    ("brackets", "", "<"),
    ("brackets in a value", "<ACTION><note><text>", "<"),
    (
        "spaces in a gap",
        "<ACTION><write><content>a</content>",
        " ",
    ),
    ("backticks", "", "` "),
    ("rows of backticks", "", "` `` ``` "),
    ("fences", "", "```\n<ACTION>\n"),
    ("closed fences", "", "```\n<ACTION><ping/></ACTION>\n```\n"),
    ("thoughts", "<think>", "</thin"),
    ("closing marks of thoughts", "", "a</think>"),
    ("blocks taken back", "", "<ACTION><ping/></ACTION></think>"),
    ("square brackets", "", "["),
    ("triangles", "", "◁"),
    ("channels", "", "<|channel|>analysis"),
    ("white space behind a thought", "</think>", " "),
    ("quotes", "", "> <ACTION>\n"),
    ("blocks", "", "<ACTION><ping/></ACTION>"),
    (
        "field blocks",
        "",
        "<|[REQUEST_TOOL]|>\ncommand:「始」ping「末」\n<|[END_TOOL]|>\n",
    ),
    (
        "opened field blocks",
        "",
        "<|[REQUEST_TOOL]|>\ncommand:「始」ping「末」\n",
    ),
    ("opened field values", "<|[REQUEST_TOOL]|>\n", "text:「始」"),
    (
        "closers and words",
        "<|[REQUEST_TOOL]|>\ntext:「始」",
        "「末」 x ",
    ),
    (
        "closers and spaces",
        "<|[REQUEST_TOOL]|>\ntext:「始」「末」",
        " ",
    ),
    (
        "closers and unknown keys",
        "<|[REQUEST_TOOL]|>\ntext:「始」",
        "「末」 k:「始」",
    ),
    (
        "end marks in a value",
        "<|[REQUEST_TOOL]|>\ntext:「始」",
        "\n<|[END_TOOL]|>",
    ),
    (
        "remarks between fields",
        "<|[REQUEST_TOOL]|>\n",
        "some remark ",
    ),
    ("arrows", "<|[REQUEST_TOOL]|>\ntext:>>>", "<<< "),
    ("json openings", "<tool_call>", "{\"a\":["),
    (
        "comments in a structured value",
        "<ACTION><free><a><k/>",
        "<!-- </a> -->",
    ),
    (
        "open comments in a structured value",
        "<ACTION><free><a><k/>",
        "<!-- </a>",
    ),
    (
        "elements named like the call",
        "<ACTION><free><a><k/>",
        "<free></a></free>",
    ),
    (
        "cdata and text by turns",
        "<ACTION><note><text>",
        "<![CDATA[a]]>b",
    ),
    ("full-width brackets", "", "＜ACTION＞ "),
    ("rows of full-width brackets", "", "＜"),
];

fn steps(text: &str, chunk: usize) -> u64 {
    let policy = Policy {
        limits: Limits {
            message_bytes: 64 << 20,
            block_bytes: 64 << 20,
            value_bytes: 64 << 20,
            parameters: 256,
            ..Limits::default()
        },
        ..Policy::default()
    };
    let mut parser = Parser::new(catalogue().expect("the catalogue is valid"), policy);
    let mut rest = text;
    while !rest.is_empty() {
        let mut cut = chunk.min(rest.len());
        while !rest.is_char_boundary(cut) {
            cut += 1;
        }
        parser.push(&rest[..cut]);
        rest = &rest[cut..];
    }
    // The last decisions are made at the end; they count as well.
    parser.finish_counting(FinishReason::Length)
}

fn filled(prefix: &str, unit: &str, bytes: usize) -> String {
    let mut text = prefix.to_owned();
    while text.len() < bytes {
        text.push_str(unit);
    }
    text
}

const SHORT: usize = 10_000;

/// The length of the long texts, in bytes; `make mutate` raises it. A scanner that reads text again
/// does so a hundred times as often in these as in the short ones.
fn long() -> usize {
    let asked = std::env::var("TAVERN_TEST_BYTES").ok();
    asked.map_or(1_000_000, |asked| {
        asked.parse().expect("TAVERN_TEST_BYTES is a number")
    })
}

/// The shapes of one part in `of`, so that the parts are tests of their own and run side by side.
fn check_part(part: usize, of: usize) {
    let (mut failures, long) = (Vec::new(), long());
    for (name, prefix, unit) in SHAPES.iter().skip(part).step_by(of) {
        let per_byte = |bytes: usize| {
            let text = filled(prefix, unit, bytes);
            steps(&text, usize::MAX) as f64 / text.len() as f64
        };
        let (of_short, of_long) = (per_byte(SHORT), per_byte(long));
        if of_long > 2.0 * of_short + 2.0 || of_long > 64.0 {
            failures.push(format!(
                "{name}: {of_short:.1} steps per byte of {SHORT} bytes, {of_long:.1} of {long}"
            ));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// One test for each part.
macro_rules! parts {
    ($($name:ident: $part:literal),+ $(,)?) => {
        const PARTS: usize = [$($part),+].len();
        $(
            #[test]
            fn $name() {
                check_part($part, PARTS);
            }
        )+
    };
}

mod steps_per_byte_are_the_same_for_short_and_long_texts {
    use super::check_part;

    parts! {
        part_0: 0, part_1: 1, part_2: 2, part_3: 3, part_4: 4, part_5: 5,
        part_6: 6, part_7: 7, part_8: 8, part_9: 9, part_10: 10, part_11: 11,
    }
}

/// A text that puts the scanners in each of their states.
const STATES: &[(&str, &str)] = &[
    ("text", ""),
    ("inline code", "`a"),
    ("fence", "```\nx\n"),
    ("fence with a block", "```\n<ACTION><note><text>"),
    ("quotation", "> "),
    ("comment", "<!--"),
    ("thought", "<think>"),
    ("element without wrapper", "<note>"),
    ("between calls", "<ACTION>"),
    ("text between calls", "<ACTION><ping/>x"),
    ("between parameters", "<ACTION><note>"),
    ("value", "<ACTION><note><text>"),
    ("wide value", "＜ACTION＞＜note＞＜text＞"),
    ("value of any type", "<ACTION><free><a><k/>"),
    ("closed value", "<ACTION><write><content>a</content>"),
    ("CDATA", "<ACTION><note><text><![CDATA["),
    (
        "CDATA that could have ended",
        "<ACTION><write><content><![CDATA[</content><path>",
    ),
    ("closed CDATA", "<ACTION><note><text><![CDATA[a]]>"),
    (
        "generic value",
        "<tool_call name=\"note\"><param name=\"text\">",
    ),
    ("JSON", "<tool_call>{\"name\":\""),
    ("between fields", "<|[REQUEST_TOOL]|>\n"),
    ("remark between fields", "<|[REQUEST_TOOL]|>\n# "),
    ("field", "<|[REQUEST_TOOL]|>\ntext:「始」"),
    ("ESCAPE field", "<|[REQUEST_TOOL]|>\ntext:「始ESCAPE」"),
    ("guillemet field", "<|[REQUEST_TOOL]|>\ntext:»»»"),
    ("arrow field", "<|[REQUEST_TOOL]|>\ntext:>>>"),
    ("closed field", "<|[REQUEST_TOOL]|>\ntext:「始」a「末」"),
    ("VCP field", "<<<[TOOL_REQUEST]>>>\ntool_name:「始」"),
];

/// The units that may repeat in a state.
const UNITS: &[&str] = &[
    "＜",
    "＞",
    "<",
    "</",
    "</x",
    "＜/",
    "&",
    "`",
    "~",
    "```\n",
    "\n",
    " ",
    "\n> ",
    "\\<",
    "<!--",
    "-->",
    "<!",
    "<![CDATA[",
    "]]>",
    "]",
    "]]> x ",
    "<text>",
    "</text>",
    "</text> ",
    "</content><path>",
    "</note>",
    "</note><note>",
    "<ACTION>",
    "</ACTION>",
    "<param name=\"text\">",
    "</param>",
    "<a b=\"",
    "「",
    "「始」",
    "「末」",
    "「末」 ",
    "\ntext:「始」",
    "text：",
    "\n「末」text",
    "「始ESCAPE」",
    "「末ESCAPE」",
    "»»»",
    "«««",
    "«",
    ">>>",
    "<<<",
    "# ",
    "//",
    ",",
    "：",
    "=",
    "{",
    "\"",
    "\\",
    "<|[",
    "<|[REQUEST_TOOL]|>",
    "\n<|[END_TOOL]|>",
    "<<<[",
    "、",
    "é",
];

/// Each state with each unit. The texts are shorter than the texts of the named shapes: quadratic
/// growth shows here as well.
#[test]
fn every_state_reads_everything_in_linear_time() {
    const SHORT: usize = 2_000;
    const LONG: usize = 32_000;
    let mut failures = Vec::new();
    for (state, prefix) in STATES {
        for unit in UNITS {
            let per_byte = |bytes: usize| {
                let text = filled(prefix, unit, bytes);
                steps(&text, usize::MAX) as f64 / text.len() as f64
            };
            let (of_short, of_long) = (per_byte(SHORT), per_byte(LONG));
            if of_long > 2.0 * of_short + 2.0 || of_long > 128.0 {
                failures.push(format!(
                    "{state}, {unit:?}: {of_short:.1} steps per byte of {SHORT} bytes, {of_long:.1} of {LONG}"
                ));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn small_pieces_cost_little_more_than_the_whole() {
    let mut failures = Vec::new();
    for (name, prefix, unit) in SHAPES {
        let text = filled(prefix, unit, 50_000);
        let whole = steps(&text, usize::MAX) as f64;
        let pieces = steps(&text, 7) as f64;
        if pieces > 4.0 * whole + 40.0 * text.len() as f64 {
            failures.push(format!(
                "{name}: {:.1} steps per byte whole, {:.1} in pieces",
                whole / text.len() as f64,
                pieces / text.len() as f64
            ));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
