//! The ways in which families of models write calls, after their model cards or chat templates.

use call_catalogue::Rule;
use serde_json::{Value, json};

use crate::pieces::{Meant, Pieces};

/// A family and its way of writing.
#[derive(Debug)]
pub struct Family {
    /// Its name.
    pub name: &'static str,
    /// The rule by which it is read.
    pub rule: Rule,
    /// Texts that must never be shown to a user.
    pub marks: &'static [&'static str],
    /// Writes calls.
    pub write: fn(&mut Pieces, &[Meant]),
}

impl Family {
    /// The text of some calls.
    pub fn text(&self, calls: &[Meant]) -> String {
        self.pieces(calls).whole()
    }

    /// The text of some calls, with its marks.
    pub fn pieces(&self, calls: &[Meant]) -> Pieces {
        let mut pieces = Pieces::default();
        (self.write)(&mut pieces, calls);
        pieces
    }

    /// Whether the calls must be the whole message.
    pub fn is_alone(&self) -> bool {
        self.rule == Rule::F2
    }
}

macro_rules! families {
    ($($name:literal, $rule:ident, $marks:expr, $write:expr;)+) => {
        /// Every family.
        pub static FAMILIES: &[Family] = &[$(
            Family { name: $name, rule: Rule::$rule, marks: &$marks, write: $write },
        )+];
    };
}

families! {
    "glm", F1, ["<tool_call>", "</tool_call>", "arg_key", "arg_value"], |to, calls| glm(to, calls, "\n");
    "glm 4.7", F1, ["<tool_call>", "</tool_call>", "arg_key", "arg_value"], |to, calls| glm(to, calls, "");
    "json", F2, ["\"name\"", "\"parameters\""], |to, calls| to.text(list(calls, "parameters"));
    "json in a fence", F2, ["\"name\"", "\"arguments\""], json_in_fence;
    "deepseek v3", F3, ["<｜"], deepseek_v3;
    "deepseek v3.1", F3, ["<｜"], deepseek_v31;
    "deepseek v3.2", F3, ["DSML", "invoke"], |to, calls| {
        invokes(to, calls, ["<｜DSML｜function_calls>", "</｜DSML｜function_calls>"], "｜DSML｜", true);
    };
    "harmony", F4, ["<|channel|>", "<|message|>", "to=functions", "<|call|>"], harmony;
    "harmony, recipient first", F4, ["<|start|>", "<|message|>", "to=functions", "<|call|>"], harmony_recipient;
    "kimi", F5, ["<|tool_call"], kimi;
    "mistral", F6, ["[TOOL_CALLS]", "\"name\""], mistral;
    "mistral with names", F6, ["[TOOL_CALLS]", "[ARGS]"], mistral_names;
    "minimax", F7, ["minimax", "invoke", "<parameter"], |to, calls| {
        invokes(to, calls, ["<minimax:tool_call>", "</minimax:tool_call>"], "", false);
    };
    "seed", F7, ["seed:", "<function", "<parameter"], seed;
    "antml", F7, ["antml", "invoke"], |to, calls| {
        invokes(to, calls, ["<function_calls>", "</function_calls>"], "antml:", false);
    };
    "hermes", F8, ["<tool_call>", "</tool_call>", "\"name\""], hermes;
}

/// The text of a value as templates write it: strings as they are, all else as JSON.
fn shown(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

fn json_of((_, arguments): &Meant) -> String {
    Value::Object(arguments.clone()).to_string()
}

/// Writes each call, with a text between them.
fn each(
    to: &mut Pieces,
    calls: &[Meant],
    between: &str,
    write: impl Fn(&mut Pieces, usize, &Meant),
) {
    for (index, call) in calls.iter().enumerate() {
        if index > 0 {
            to.text(between);
        }
        write(to, index, call);
    }
}

fn glm(to: &mut Pieces, calls: &[Meant], gap: &str) {
    each(to, calls, gap, |to, _, (name, arguments)| {
        to.mark("<tool_call>");
        to.text(format!("{name}{gap}"));
        for (key, value) in arguments {
            to.mark("<arg_key>");
            to.text(key.as_str());
            to.mark("</arg_key>");
            to.text(gap);
            to.mark("<arg_value>");
            to.text(shown(value));
            to.mark("</arg_value>");
            to.text(gap);
        }
        to.mark("</tool_call>");
    });
}

/// The JSON of a call, or of the list of several.
fn list(calls: &[Meant], key: &str) -> String {
    let objects = calls
        .iter()
        .map(|(name, arguments)| json!({"name": name, key: arguments}));
    match objects.collect::<Vec<_>>().as_slice() {
        [one] => one.to_string(),
        several => Value::from(several).to_string(),
    }
}

fn json_in_fence(to: &mut Pieces, calls: &[Meant]) {
    to.text(format!("```json\n{}\n```", list(calls, "arguments")));
}

fn deepseek_v3(to: &mut Pieces, calls: &[Meant]) {
    to.mark("<｜tool▁calls▁begin｜>");
    each(to, calls, "\n", |to, _, call| {
        to.mark("<｜tool▁call▁begin｜>");
        to.text("function");
        to.mark("<｜tool▁sep｜>");
        to.text(format!("{}\n```json\n{}\n```", call.0, json_of(call)));
        to.mark("<｜tool▁call▁end｜>");
    });
    to.mark("<｜tool▁calls▁end｜>");
}

fn deepseek_v31(to: &mut Pieces, calls: &[Meant]) {
    to.mark("<｜tool▁calls▁begin｜>");
    each(to, calls, "", |to, _, call| {
        to.mark("<｜tool▁call▁begin｜>");
        to.text(call.0.as_str());
        to.mark("<｜tool▁sep｜>");
        to.text(json_of(call));
        to.mark("<｜tool▁call▁end｜>");
    });
    to.mark("<｜tool▁calls▁end｜>");
}

/// Invokes in a wrapper, each of their names behind a namespace; `typed` marks for each value
/// whether it is a string.
fn invokes(to: &mut Pieces, calls: &[Meant], [open, close]: [&str; 2], space: &str, typed: bool) {
    to.mark(open);
    to.text("\n");
    each(to, calls, "", |to, _, (name, arguments)| {
        to.mark(format!("<{space}invoke name=\"{name}\">"));
        to.text("\n");
        for (key, value) in arguments {
            let string = match typed {
                true => format!(" string=\"{}\"", value.is_string()),
                false => String::new(),
            };
            to.mark(format!("<{space}parameter name=\"{key}\"{string}>"));
            to.text(shown(value));
            to.mark(format!("</{space}parameter>"));
            to.text("\n");
        }
        to.mark(format!("</{space}invoke>"));
        to.text("\n");
    });
    to.mark(close);
}

fn harmony(to: &mut Pieces, calls: &[Meant]) {
    each(to, calls, "<|start|>assistant", |to, _, call| {
        to.mark("<|channel|>");
        to.text(format!("commentary to=functions.{} ", call.0));
        to.mark("<|constrain|>");
        to.text("json");
        to.mark("<|message|>");
        to.text(json_of(call));
        to.mark("<|call|>");
    });
}

fn harmony_recipient(to: &mut Pieces, calls: &[Meant]) {
    each(to, calls, "", |to, _, call| {
        to.mark("<|start|>");
        to.text(format!("assistant to=functions.{}", call.0));
        to.mark("<|channel|>");
        to.text("commentary ");
        to.mark("<|constrain|>");
        to.text("json");
        to.mark("<|message|>");
        to.text(json_of(call));
        to.mark("<|call|>");
    });
}

fn kimi(to: &mut Pieces, calls: &[Meant]) {
    to.mark("<|tool_calls_section_begin|>");
    each(to, calls, "", |to, index, call| {
        to.mark("<|tool_call_begin|>");
        to.text(format!("functions.{}:{index}", call.0));
        to.mark("<|tool_call_argument_begin|>");
        to.text(json_of(call));
        to.mark("<|tool_call_end|>");
    });
    to.mark("<|tool_calls_section_end|>");
}

fn mistral(to: &mut Pieces, calls: &[Meant]) {
    to.mark("[TOOL_CALLS]");
    let objects = calls
        .iter()
        .map(|(name, arguments)| json!({"name": name, "arguments": arguments}));
    to.text(objects.collect::<Value>().to_string());
}

fn mistral_names(to: &mut Pieces, calls: &[Meant]) {
    each(to, calls, "", |to, _, call| {
        to.mark("[TOOL_CALLS]");
        to.text(call.0.as_str());
        to.mark("[ARGS]");
        to.text(json_of(call));
    });
}

fn seed(to: &mut Pieces, calls: &[Meant]) {
    each(to, calls, "\n", |to, _, (name, arguments)| {
        to.mark("<seed:tool_call>");
        to.text("\n");
        to.mark(format!("<function={name}>"));
        to.text("\n");
        for (key, value) in arguments {
            to.mark(format!("<parameter={key}>"));
            to.text(shown(value));
            to.mark("</parameter>");
            to.text("\n");
        }
        to.mark("</function>");
        to.text("\n");
        to.mark("</seed:tool_call>");
    });
}

fn hermes(to: &mut Pieces, calls: &[Meant]) {
    each(to, calls, "\n", |to, _, (name, arguments)| {
        to.mark("<tool_call>");
        to.text(format!(
            "\n{}\n",
            json!({"name": name, "arguments": arguments})
        ));
        to.mark("</tool_call>");
    });
}
