//! The formats in which models were trained to write calls.

use serde_json::{Value, json};

use super::{Form, Meant, Random, Written, call};

impl Written {
    /// A block of one to three calls.
    pub(super) fn trained(&mut self, form: Form, random: &mut Random) {
        let calls: Vec<Meant> = (0..1 + random.below(3)).map(|_| call(random)).collect();
        let (open, close, between) = match form {
            Form::DeepSeek => ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "\n"),
            Form::DeepSeekTags => (
                "<｜DSML｜function_calls>",
                "</｜DSML｜function_calls>",
                "\n",
            ),
            Form::Kimi => (
                "<|tool_calls_section_begin|>",
                "<|tool_calls_section_end|>",
                "",
            ),
            Form::Namespaced => ("<minimax:tool_call>", "</minimax:tool_call>", "\n"),
            _ => ("", "", "\n"),
        };
        if form == Form::Json {
            let objects = calls
                .iter()
                .map(|(name, arguments)| json!({"name": name, "parameters": arguments}));
            self.text(objects.collect::<Value>().to_string());
            self.mark("\n");
        } else {
            self.marks(open);
            for (index, call) in calls.iter().enumerate() {
                if index > 0 {
                    self.text(between);
                }
                self.one(form, index, call);
            }
            self.marks(close);
        }
        self.meant.extend(calls);
    }

    fn marks(&mut self, mark: &str) {
        if !mark.is_empty() {
            self.mark(mark);
        }
    }

    fn one(&mut self, form: Form, index: usize, (name, arguments): &Meant) {
        let json = Value::Object(arguments.clone()).to_string();
        match form {
            Form::DeepSeek => {
                self.mark("<｜tool▁call▁begin｜>");
                self.text(name.as_str());
                self.mark("<｜tool▁sep｜>");
                self.text(json);
                self.mark("<｜tool▁call▁end｜>");
            }
            Form::Kimi => {
                self.mark("<|tool_call_begin|>");
                self.text(format!("functions.{name}:{index}"));
                self.mark("<|tool_call_argument_begin|>");
                self.text(json);
                self.mark("<|tool_call_end|>");
            }
            Form::Harmony => {
                self.mark("<|start|>");
                self.text("assistant");
                self.mark("<|channel|>");
                self.text(format!("commentary to=functions.{name} "));
                self.mark("<|constrain|>");
                self.text("json");
                self.mark("<|message|>");
                self.text(json);
                self.mark("<|call|>");
            }
            Form::Mistral => {
                self.mark("[TOOL_CALLS]");
                self.text(name.as_str());
                self.mark("[ARGS]");
                self.text(json);
            }
            Form::Hermes => {
                self.mark("<tool_call>");
                self.text(format!(
                    "\n{}\n",
                    json!({"name": name, "arguments": arguments})
                ));
                self.mark("</tool_call>");
            }
            Form::Glm => {
                self.mark("<tool_call>");
                self.text(format!("{name}\n"));
                for (key, value) in arguments {
                    self.mark("<arg_key>");
                    self.text(key.as_str());
                    self.mark("</arg_key>");
                    self.text("\n");
                    self.mark("<arg_value>");
                    self.text(framed(value));
                    self.mark("</arg_value>");
                    self.text("\n");
                }
                self.mark("</tool_call>");
            }
            _ => {
                let space = if form == Form::DeepSeekTags {
                    "｜DSML｜"
                } else {
                    ""
                };
                self.mark(format!("<{space}invoke name=\"{name}\">"));
                self.text("\n");
                for (key, value) in arguments {
                    self.mark(format!("<{space}parameter name=\"{key}\">"));
                    self.text(framed(value));
                    self.mark(format!("</{space}parameter>"));
                    self.text("\n");
                }
                self.mark(format!("</{space}invoke>"));
            }
        }
    }
}

/// The text of a value, on lines of its own where it has several.
fn framed(value: &Value) -> String {
    let text = value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned);
    let frame = if text.contains('\n') { "\n" } else { "" };
    format!("{frame}{text}{frame}")
}
