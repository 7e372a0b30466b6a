//! One call in every dialect, and in every form that a dialect has for values.

use call_catalogue::{Catalogue, Tool};
use serde_json::{Map, Value, json};

use crate::native::{NativeCall, typed};
use crate::{Call, Policy, parse};

/// A call of `t` as each way of writing it is read, by the name of the way.
pub(super) fn calls(parameters: &Value, arguments: &Value) -> Vec<(&'static str, Call)> {
    let tool = Tool::new("t", "", parameters.clone());
    let catalogue = Catalogue::new(vec![tool], vec![]).unwrap();
    let members = arguments.as_object().unwrap();
    let mut written = in_fields(members);
    written.extend(in_elements(members));
    written.extend(in_json(arguments));
    let read = |(name, text): (&'static str, String)| {
        let parsed = parse(&text, &catalogue, &Policy::default());
        assert_eq!(parsed.calls.len(), 1, "{name}: {text}");
        (name, Call::clone(&parsed.calls[0]))
    };
    let mut calls: Vec<(&'static str, Call)> = written.into_iter().map(read).collect();
    let native = NativeCall {
        name: "t".to_owned(),
        arguments_json: arguments.to_string(),
        ..NativeCall::default()
    };
    let mut native = typed(&[native], &catalogue, &Policy::default());
    calls.push(("native", native.remove(0)));
    calls
}

fn in_fields(arguments: &Map<String, Value>) -> Vec<(&'static str, String)> {
    let fields = |open: &str, close: &str| {
        let field =
            |(name, value): (&String, &Value)| format!("{name}:{open}{}{close},\n", text(value));
        arguments.iter().map(field).collect::<String>()
    };
    let (corners, arrows) = (fields("「始」", "「末」"), fields("»»»", "«««"));
    vec![
        (
            "tam v1",
            format!("<|[REQUEST_TOOL]|>\ncommand:「始」t「末」,\n{corners}<|[END_TOOL]|>"),
        ),
        (
            "tam v2",
            format!("<|[REQUEST_TOOL]|>\ncommand_1:»»»t«««\n{arrows}<|[END_TOOL]|>"),
        ),
        (
            "vcp",
            format!(
                "<<<[TOOL_REQUEST]>>>\ntool_name:「始」t「末」,\n{corners}<<<[END_TOOL_REQUEST]>>>"
            ),
        ),
    ]
}

fn in_elements(arguments: &Map<String, Value>) -> Vec<(&'static str, String)> {
    let parts = |open: &str, close: &str, of: fn(&Value) -> String| {
        let part = |(name, value): (&String, &Value)| {
            let (open, close) = (open.replace('@', name), close.replace('@', name));
            format!("{open}{}{close}", of(value))
        };
        arguments.iter().map(part).collect::<String>()
    };
    let params = parts("<param name=\"@\">", "</param>", text);
    vec![
        (
            "action, elements",
            format!("<ACTION><t>{}</t></ACTION>", parts("<@>", "</@>", elements)),
        ),
        (
            "action, JSON text",
            format!("<ACTION><t>{}</t></ACTION>", parts("<@>", "</@>", text)),
        ),
        (
            "tool_call",
            format!("<tool_call name=\"t\">{params}</tool_call>"),
        ),
        ("invoke", format!("<invoke name=\"t\">{params}</invoke>")),
        (
            "function",
            format!(
                "<function=t>{}</function>",
                parts("<parameter=@>", "</parameter>", text)
            ),
        ),
    ]
}

fn in_json(arguments: &Value) -> Vec<(&'static str, String)> {
    let call = json!({"name": "t", "arguments": arguments});
    vec![
        (
            "tool_call of JSON",
            format!("<tool_call>{call}</tool_call>"),
        ),
        ("json in action", format!("<ACTION>{call}</ACTION>")),
        (
            "json as body",
            format!("<ACTION><t>{arguments}</t></ACTION>"),
        ),
        (
            "function with JSON",
            format!("<function=t>{arguments}</function>"),
        ),
        (
            "invoke with JSON",
            format!("<invoke name=\"t\">{arguments}</invoke>"),
        ),
        (
            "tool_call with JSON",
            format!("<tool_call name=\"t\">{arguments}</tool_call>"),
        ),
    ]
}

/// A value as a dialect without structure writes it.
fn text(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// A value as elements.
fn elements(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let member =
                |(name, value): (&String, &Value)| format!("<{name}>{}</{name}>", elements(value));
            members.iter().map(member).collect()
        }
        Value::Array(items) => {
            let item = |item| format!("<item>{}</item>", elements(item));
            items.iter().map(item).collect()
        }
        other => text(other),
    }
}
