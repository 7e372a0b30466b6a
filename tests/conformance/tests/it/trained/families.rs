//! How each family of models writes calls, after its model card or chat template.

use call_catalogue::Rule;
use serde_json::{Value, json};

use super::Meant;

/// A family and its way of writing.
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) rule: Rule,
    /// What must never be shown to a user.
    pub(super) marks: &'static [&'static str],
    pub(super) write: fn(&[Meant]) -> String,
}

pub(super) static FAMILIES: &[Family] = &[
    Family {
        name: "glm",
        rule: Rule::F1,
        marks: &["<tool_call>", "</tool_call>", "arg_key", "arg_value"],
        write: glm,
    },
    Family {
        name: "glm 4.7",
        rule: Rule::F1,
        marks: &["<tool_call>", "</tool_call>", "arg_key", "arg_value"],
        write: glm_one_line,
    },
    Family {
        name: "json",
        rule: Rule::F2,
        marks: &["\"name\"", "\"parameters\""],
        write: json_alone,
    },
    Family {
        name: "json in a fence",
        rule: Rule::F2,
        marks: &["\"name\"", "\"arguments\""],
        write: json_in_fence,
    },
    Family {
        name: "deepseek v3",
        rule: Rule::F3,
        marks: &["<｜"],
        write: deepseek_v3,
    },
    Family {
        name: "deepseek v3.1",
        rule: Rule::F3,
        marks: &["<｜"],
        write: deepseek_v31,
    },
    Family {
        name: "deepseek v3.2",
        rule: Rule::F3,
        marks: &["DSML", "invoke"],
        write: deepseek_v32,
    },
    Family {
        name: "harmony",
        rule: Rule::F4,
        marks: &["<|channel|>", "<|message|>", "to=functions", "<|call|>"],
        write: harmony,
    },
    Family {
        name: "harmony, recipient first",
        rule: Rule::F4,
        marks: &["<|start|>", "<|message|>", "to=functions", "<|call|>"],
        write: harmony_recipient,
    },
    Family {
        name: "kimi",
        rule: Rule::F5,
        marks: &["<|tool_call"],
        write: kimi,
    },
    Family {
        name: "mistral",
        rule: Rule::F6,
        marks: &["[TOOL_CALLS]", "\"name\""],
        write: mistral,
    },
    Family {
        name: "mistral with names",
        rule: Rule::F6,
        marks: &["[TOOL_CALLS]", "[ARGS]"],
        write: mistral_names,
    },
    Family {
        name: "minimax",
        rule: Rule::F7,
        marks: &["minimax", "invoke", "<parameter"],
        write: minimax,
    },
    Family {
        name: "seed",
        rule: Rule::F7,
        marks: &["seed:", "<function", "<parameter"],
        write: seed,
    },
    Family {
        name: "antml",
        rule: Rule::F7,
        marks: &["antml", "invoke"],
        write: antml,
    },
    Family {
        name: "hermes",
        rule: Rule::F8,
        marks: &["<tool_call>", "</tool_call>", "\"name\""],
        write: hermes,
    },
];

/// Calls in formats that are not read.
pub(super) static UNSUPPORTED: &[(&str, &str)] = &[
    (
        "gemma",
        "```tool_code\nprint(get_weather(city=\"Paris\", days=3))\n```",
    ),
    (
        "gemma 4",
        "<|tool_call>call:get_weather{city:\"Paris\"}<tool_call|>",
    ),
    (
        "function gemma",
        "<start_function_call>call:get_weather{city:<escape>Paris<escape>}<end_function_call>",
    ),
    (
        "llama 4",
        "[get_weather(city=\"Paris\", days=3), get_time()]",
    ),
    (
        "llama 4, marked",
        "<|python_start|>get_weather(city='Paris')<|python_end|>",
    ),
    (
        "llama 3.1",
        "<|python_tag|>get_weather.call(city=\"Paris\")",
    ),
    (
        "lfm2",
        "<|tool_call_start|>[get_weather(city=\"Paris\")]<|tool_call_end|>",
    ),
    ("cline", "<get_weather>\n<city>Paris</city>\n</get_weather>"),
    (
        "react",
        "Thought: I need the weather.\nAction: get_weather\nAction Input: {\"city\": \"Paris\"}",
    ),
    (
        "phi 4",
        "<|tool_call|>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}]<|/tool_call|>",
    ),
    (
        "phi 3.5",
        "functools[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}]",
    ),
    (
        "nemotron",
        "<TOOLCALL>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}]</TOOLCALL>",
    ),
    (
        "internlm",
        "<|action_start|><|plugin|>\n{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Paris\"}}<|action_end|>",
    ),
    (
        "cohere",
        "<|START_ACTION|>[{\"tool_call_id\": \"0\", \"tool_name\": \"get_weather\", \"parameters\": {\"city\": \"Paris\"}}]<|END_ACTION|>",
    ),
    (
        "step",
        "<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name=\"get_weather\"><steptml:parameter name=\"city\">Paris</steptml:parameter></steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜>",
    ),
    (
        "tool_call in brackets",
        "[TOOL_CALL]\n{\"tool\": \"get_weather\", \"args\": {\"city\": \"Paris\"}}\n[/TOOL_CALL]",
    ),
    (
        "glaive",
        "<functioncall> {\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}} </functioncall>",
    ),
    (
        "json behind prose",
        "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n{\"name\": \"get_time\", \"arguments\": {}}",
    ),
];

fn object(name: &str, key: &str, arguments: &Value) -> Value {
    json!({"name": name, key: arguments})
}

/// The text of a value as templates write it: strings as they are, all else as JSON.
fn shown(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

fn each(calls: &[Meant], write: impl Fn(&str, &Value) -> String, between: &str) -> String {
    let written: Vec<String> = calls
        .iter()
        .map(|(name, arguments)| write(name, arguments))
        .collect();
    written.join(between)
}

fn members(arguments: &Value, write: impl Fn(&str, &Value) -> String) -> String {
    let members = arguments.as_object().into_iter().flatten();
    members.map(|(key, value)| write(key, value)).collect()
}

fn glm(calls: &[Meant]) -> String {
    let pair = |key: &str, value: &Value| {
        format!(
            "<arg_key>{key}</arg_key>\n<arg_value>{}</arg_value>\n",
            shown(value)
        )
    };
    each(
        calls,
        |name, arguments| {
            format!(
                "<tool_call>{name}\n{}</tool_call>",
                members(arguments, pair)
            )
        },
        "\n",
    )
}

fn glm_one_line(calls: &[Meant]) -> String {
    let pair = |key: &str, value: &Value| {
        format!(
            "<arg_key>{key}</arg_key><arg_value>{}</arg_value>",
            shown(value)
        )
    };
    each(
        calls,
        |name, arguments| format!("<tool_call>{name}{}</tool_call>", members(arguments, pair)),
        "",
    )
}

fn list(calls: &[Meant], key: &str) -> String {
    let objects: Vec<Value> = calls
        .iter()
        .map(|(name, arguments)| object(name, key, arguments))
        .collect();
    match objects.as_slice() {
        [one] => one.to_string(),
        _ => Value::Array(objects).to_string(),
    }
}

fn json_alone(calls: &[Meant]) -> String {
    list(calls, "parameters")
}

fn json_in_fence(calls: &[Meant]) -> String {
    format!("```json\n{}\n```", list(calls, "arguments"))
}

fn deepseek_v3(calls: &[Meant]) -> String {
    let call = |name: &str, arguments: &Value| {
        format!(
            "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{arguments}\n```<｜tool▁call▁end｜>"
        )
    };
    format!(
        "<｜tool▁calls▁begin｜>{}<｜tool▁calls▁end｜>",
        each(calls, call, "\n")
    )
}

fn deepseek_v31(calls: &[Meant]) -> String {
    let call = |name: &str, arguments: &Value| {
        format!("<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{arguments}<｜tool▁call▁end｜>")
    };
    format!(
        "<｜tool▁calls▁begin｜>{}<｜tool▁calls▁end｜>",
        each(calls, call, "")
    )
}

fn deepseek_v32(calls: &[Meant]) -> String {
    let parameter = |key: &str, value: &Value| {
        format!(
            "<｜DSML｜parameter name=\"{key}\" string=\"{}\">{}</｜DSML｜parameter>\n",
            value.is_string(),
            shown(value)
        )
    };
    let call = |name: &str, arguments: &Value| {
        format!(
            "<｜DSML｜invoke name=\"{name}\">\n{}</｜DSML｜invoke>\n",
            members(arguments, parameter)
        )
    };
    format!(
        "<｜DSML｜function_calls>\n{}</｜DSML｜function_calls>",
        each(calls, call, "")
    )
}

fn harmony(calls: &[Meant]) -> String {
    let call = |name: &str, arguments: &Value| {
        format!(
            "<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{arguments}<|call|>"
        )
    };
    each(calls, call, "<|start|>assistant")
}

fn harmony_recipient(calls: &[Meant]) -> String {
    let call = |name: &str, arguments: &Value| {
        format!(
            "<|start|>assistant to=functions.{name}<|channel|>commentary <|constrain|>json<|message|>{arguments}<|call|>"
        )
    };
    each(calls, call, "")
}

fn kimi(calls: &[Meant]) -> String {
    let written = calls.iter().enumerate().map(|(index, (name, arguments))| {
        format!("<|tool_call_begin|>functions.{name}:{index}<|tool_call_argument_begin|>{arguments}<|tool_call_end|>")
    });
    format!(
        "<|tool_calls_section_begin|>{}<|tool_calls_section_end|>",
        written.collect::<String>()
    )
}

fn mistral(calls: &[Meant]) -> String {
    let objects: Vec<Value> = calls
        .iter()
        .map(|(name, arguments)| object(name, "arguments", arguments))
        .collect();
    format!("[TOOL_CALLS]{}", Value::Array(objects))
}

fn mistral_names(calls: &[Meant]) -> String {
    each(
        calls,
        |name, arguments| format!("[TOOL_CALLS]{name}[ARGS]{arguments}"),
        "",
    )
}

fn invokes(calls: &[Meant], prefix: &str) -> String {
    let parameter = |key: &str, value: &Value| {
        format!(
            "<{prefix}parameter name=\"{key}\">{}</{prefix}parameter>\n",
            shown(value)
        )
    };
    let call = |name: &str, arguments: &Value| {
        format!(
            "<{prefix}invoke name=\"{name}\">\n{}</{prefix}invoke>\n",
            members(arguments, parameter)
        )
    };
    each(calls, call, "")
}

fn minimax(calls: &[Meant]) -> String {
    format!(
        "<minimax:tool_call>\n{}</minimax:tool_call>",
        invokes(calls, "")
    )
}

fn antml(calls: &[Meant]) -> String {
    format!(
        "<function_calls>\n{}</function_calls>",
        invokes(calls, "antml:")
    )
}

fn seed(calls: &[Meant]) -> String {
    let parameter =
        |key: &str, value: &Value| format!("<parameter={key}>{}</parameter>\n", shown(value));
    let call = |name: &str, arguments: &Value| {
        format!(
            "<function={name}>\n{}</function>\n",
            members(arguments, parameter)
        )
    };
    each(
        calls,
        |name, arguments| {
            format!(
                "<seed:tool_call>\n{}</seed:tool_call>",
                call(name, arguments)
            )
        },
        "\n",
    )
}

fn hermes(calls: &[Meant]) -> String {
    each(
        calls,
        |name, arguments| {
            format!(
                "<tool_call>\n{}\n</tool_call>",
                object(name, "arguments", arguments)
            )
        },
        "\n",
    )
}
