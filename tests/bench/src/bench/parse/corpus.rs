//! Messages as models write them: a few kilobytes each, some prose before the calls.

use call_catalogue::{Catalogue, Tool};
use serde_json::{Value, json};

/// The goal for call markup, in MB/s.
const MARKUP_GOAL: f64 = 50.0;

/// The goal for plain text, in MB/s.
const PLAIN_GOAL: f64 = 200.0;

/// Messages of one kind.
pub(super) struct Corpus {
    pub(super) name: &'static str,
    pub(super) messages: Vec<String>,
    /// The calls of each message.
    pub(super) calls: usize,
    /// The goal, in MB/s.
    pub(super) goal: f64,
}

/// Returns every kind.
pub(super) fn all() -> Vec<Corpus> {
    let markup = |name, calls, message: fn(usize) -> String| Corpus {
        name,
        messages: (0..32).map(message).collect(),
        calls,
        goal: MARKUP_GOAL,
    };
    let plain = |name, message: fn(usize) -> String| Corpus {
        name,
        messages: (0..32).map(message).collect(),
        calls: 0,
        goal: PLAIN_GOAL,
    };
    vec![
        markup("ACTION, short values", 8, action_short),
        markup("ACTION, code in CDATA", 1, action_cdata),
        markup("ACTION, unescaped code", 1, action_raw),
        markup("TAM, short values", 8, tam_short),
        markup("TAM, code", 1, tam_code),
        plain("English prose", english),
        plain("Chinese prose", chinese),
        plain("Markdown with code", markdown),
    ]
}

/// Returns the visible tools: the tools that the messages call, and others.
pub(super) fn catalogue() -> anyhow::Result<Catalogue> {
    let mut tools = vec![
        Tool::new(
            "FileOperator.WriteFile",
            "Writes a file.",
            object(json!({
                "filePath": {"type": "string"},
                "content": {"type": "string"},
            })),
        ),
        Tool::new(
            "kb_query",
            "Searches the knowledge base.",
            object(json!({
                "query": {"type": "string"},
                "limit": {"type": "integer", "minimum": 1, "maximum": 100},
                "exact": {"type": "boolean"},
                "tag": {"type": "array", "items": {"type": "string"}},
            })),
        ),
    ];
    for number in 0..30 {
        let parameters = object(json!({"text": {"type": "string"}, "count": {"type": "integer"}}));
        tools.push(Tool::new(
            format!("helper_{number}"),
            "Stands among the others.",
            parameters,
        ));
    }
    Ok(Catalogue::new(tools, Vec::new())?)
}

fn object(properties: Value) -> Value {
    json!({"type": "object", "properties": properties, "additionalProperties": false})
}

const PROSE: &str = "The two reports disagree about the cause, so it is worth looking at the \
records of both weeks before anything is changed. I will begin with the older one, because the \
later figures depend on it, and come back to the question of the missing entries afterwards.\n\n";

fn action_short(number: usize) -> String {
    let mut text = PROSE.to_owned();
    text.push_str("<ACTION>\n");
    for call in 0..8 {
        let limit = number % 40 + call + 1;
        text.push_str(&format!(
            "  <kb_query>\n    <query>delivery records of week {limit}, north &amp; south</query>\n    \
             <limit>{limit}</limit>\n    <exact>true</exact>\n    <tag>report</tag>\n    \
             <tag>week-{limit}</tag>\n  </kb_query>\n"
        ));
    }
    text.push_str("</ACTION>");
    text
}

fn action_cdata(number: usize) -> String {
    let code = code(number);
    format!(
        "{PROSE}<ACTION>\n  <FileOperator.WriteFile>\n    <filePath>src/part_{number}.c</filePath>\n    \
         <content><![CDATA[\n{code}]]></content>\n  </FileOperator.WriteFile>\n</ACTION>"
    )
}

fn action_raw(number: usize) -> String {
    let code = code(number);
    format!(
        "{PROSE}<ACTION>\n  <FileOperator.WriteFile>\n    <filePath>src/part_{number}.c</filePath>\n    \
         <content>\n{code}</content>\n  </FileOperator.WriteFile>\n</ACTION>"
    )
}

fn tam_short(number: usize) -> String {
    let mut text = PROSE.to_owned();
    text.push_str("<|[REQUEST_TOOL]|>\n");
    for call in 1..=8 {
        let limit = number % 40 + call;
        text.push_str(&format!(
            "command{call}:「始」kb_query「末」,\nquery{call}:「始」delivery records of week {limit}, \
             north and south「末」,\nlimit{call}:「始」{limit}「末」,\nexact{call}:「始」true「末」,\n"
        ));
    }
    text.push_str("<|[END_TOOL]|>");
    text
}

fn tam_code(number: usize) -> String {
    let code = code(number);
    format!(
        "{PROSE}<|[REQUEST_TOOL]|>\ncommand:「始」FileOperator.WriteFile「末」,\nfilePath:「始」\
         src/part_{number}.c「末」,\ncontent:「始」\n{code}「末」\n<|[END_TOOL]|>"
    )
}

/// About 4 KB of code, rich in the signs that markup uses.
fn code(number: usize) -> String {
    let mut text = String::from("#include <stdio.h>\n#include <stdlib.h>\n\n");
    for part in 0..16 {
        text.push_str(&format!(
            "/* Sums what lies between the bounds of part {part}. */\n\
             static long sum_{number}_{part}(const long *from, size_t count) {{\n\
             \x20   long sum = 0;\n\
             \x20   for (size_t i = 0; i < count && from[i] >= {part}; i++) {{\n\
             \x20       sum += from[i] << 1;\n\
             \x20   }}\n\
             \x20   return sum > {number} ? sum : -1;\n\
             }}\n\n"
        ));
    }
    text
}

fn english(number: usize) -> String {
    let mut text = format!("About question {number}:\n\n");
    (0..16).for_each(|_| text.push_str(PROSE));
    text
}

fn chinese(number: usize) -> String {
    let mut text = format!("关于第 {number} 个问题：\n\n");
    for _ in 0..24 {
        text.push_str(
            "两份报告对原因的说法不一致，所以在修改任何内容之前，最好先核对这两周的记录。\
             我会从较早的一份开始，因为后面的数字都依赖于它，然后再回来处理缺失的条目。\n\n",
        );
    }
    text
}

fn markdown(number: usize) -> String {
    let code = code(number);
    format!(
        "{PROSE}```c\n{code}```\n\nIt holds while `a < b && b > c`, and for no other order.\n\n{PROSE}"
    )
}
