use call_catalogue::{Catalogue, Tool};
use serde_json::{Map, Value, json};

use crate::native::{NativeCall, typed};
use crate::{Call, Policy, parse};

/// A call of `t` in every dialect, by the name of the way in which it is written.
fn calls(parameters: &Value, arguments: &Value) -> Vec<(&'static str, Call)> {
    let object = arguments.as_object().unwrap();
    let fields = |open: &str, close: &str| {
        let field =
            |(name, value): (&String, &Value)| format!("{name}:{open}{}{close},\n", text(value));
        object.iter().map(field).collect::<String>()
    };
    let parts = |open: &dyn Fn(&str) -> String,
                 close: &dyn Fn(&str) -> String,
                 of: fn(&Value) -> String| {
        let part = |(name, value): (&String, &Value)| {
            format!("{}{}{}", open(name), of(value), close(name))
        };
        object.iter().map(part).collect::<String>()
    };
    let tag = |name: &str| format!("<{name}>");
    let end = |name: &str| format!("</{name}>");
    let mut written = vec![
        (
            "action, elements",
            format!("<ACTION><t>{}</t></ACTION>", parts(&tag, &end, elements)),
        ),
        (
            "action, JSON text",
            format!("<ACTION><t>{}</t></ACTION>", parts(&tag, &end, text)),
        ),
        (
            "tam v1",
            format!(
                "<|[REQUEST_TOOL]|>\ncommand:「始」t「末」,\n{}<|[END_TOOL]|>",
                fields("「始」", "「末」")
            ),
        ),
        (
            "tam v2",
            format!(
                "<|[REQUEST_TOOL]|>\ncommand_1:»»»t«««\n{}<|[END_TOOL]|>",
                fields("»»»", "«««")
            ),
        ),
        (
            "vcp",
            format!(
                "<<<[TOOL_REQUEST]>>>\ntool_name:「始」t「末」,\n{}<<<[END_TOOL_REQUEST]>>>",
                fields("「始」", "「末」")
            ),
        ),
        (
            "tool_call of JSON",
            format!(
                "<tool_call>{}</tool_call>",
                json!({"name": "t", "arguments": arguments})
            ),
        ),
        (
            "json in action",
            format!(
                "<ACTION>{}</ACTION>",
                json!({"name": "t", "arguments": arguments})
            ),
        ),
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
    ];
    let param = |name: &str| format!("<param name=\"{name}\">");
    let parameter = |name: &str| format!("<parameter={name}>");
    for (name, open, close, start, end) in [
        (
            "tool_call",
            &param as &dyn Fn(&str) -> String,
            "</param>",
            "<tool_call name=\"t\">",
            "</tool_call>",
        ),
        (
            "invoke",
            &param,
            "</param>",
            "<invoke name=\"t\">",
            "</invoke>",
        ),
        (
            "function",
            &parameter,
            "</parameter>",
            "<function=t>",
            "</function>",
        ),
    ] {
        let close = |_: &str| close.to_owned();
        written.push((name, format!("{start}{}{end}", parts(open, &close, text))));
    }
    let tool = Tool::new("t", "", parameters.clone());
    let catalogue = Catalogue::new(vec![tool], vec![]).unwrap();
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
        Value::Array(items) => items
            .iter()
            .map(|item| format!("<item>{}</item>", elements(item)))
            .collect(),
        other => text(other),
    }
}

fn object(name: &str, schema: &Value) -> Value {
    let properties = Map::from_iter([(name.to_owned(), schema.clone())]);
    json!({"type": "object", "properties": properties, "required": [name], "additionalProperties": false})
}

fn shapes(mark: impl Fn(&str) -> Value) -> [Value; 2] {
    [
        json!({"type": "object", "properties": {
            "kind": mark("circle"), "id": {"type": "integer"}, "radius": {"type": "number"}
        }, "required": ["kind", "id"], "additionalProperties": false}),
        json!({"type": "object", "properties": {
            "kind": mark("square"), "id": {"type": "string"}, "side": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}}
        }, "required": ["kind", "id"], "additionalProperties": false}),
    ]
}

#[test]
fn a_discriminator_chooses_the_alternative_in_every_dialect_and_depth() {
    let values = [
        json!({"kind": "circle", "id": 7, "radius": 2.0}),
        json!({"kind": "square", "id": "007", "side": "1e3", "tags": ["1", "true"]}),
    ];
    let marks: [(&str, fn(&str) -> Value); 4] = [
        ("const", |name| json!({"const": name})),
        (
            "const and type",
            |name| json!({"const": name, "type": "string", "default": name, "title": "Kind"}),
        ),
        (
            "one-value enum",
            |name| json!({"enum": [name], "type": "string"}),
        ),
        (
            "longer enum",
            |name| json!({"enum": [name, format!("{name}s")]}),
        ),
    ];
    for (how, mark) in marks {
        let [circle, square] = shapes(mark);
        let unions = [
            json!({"oneOf": [circle, square]}),
            json!({"anyOf": [circle, square]}),
            json!({"anyOf": [{"oneOf": [circle, square]}, {"type": "null"}], "default": null}),
            json!({"type": "object", "oneOf": [circle, square]}),
            json!({"allOf": [{"oneOf": [circle, square]}], "description": "A shape."}),
            json!({"anyOf": [{"type": "string"}, circle, square]}),
        ];
        for union in unions {
            for value in &values {
                check(&object("v", &union), json!({"v": value}), how);
                let list = json!({"type": "array", "items": union});
                check(
                    &object("v", &object("deep", &list)),
                    json!({"v": {"deep": [value, value]}}),
                    how,
                );
            }
        }
        let mut of_references = object(
            "v",
            &json!({
                "discriminator": {"propertyName": "kind", "mapping": {"circle": "#/$defs/Circle", "square": "#/$defs/Square"}},
                "oneOf": [{"$ref": "#/$defs/Circle"}, {"$ref": "#/$defs/Square"}]
            }),
        );
        of_references["$defs"] = json!({"Circle": circle, "Square": square});
        for value in &values {
            check(&of_references, json!({"v": value}), how);
            check(
                &json!({"type": "object", "anyOf": [circle, square]}),
                value.clone(),
                how,
            );
        }
    }
}

/// That arguments mean themselves, however they are written.
fn check(parameters: &Value, arguments: Value, how: &str) {
    for (name, call) in calls(parameters, &arguments) {
        assert!(
            call.is_ready(),
            "{how}, {name}: {:?} {:?}\n{parameters}",
            call.problems,
            call.tolerances
        );
        assert_eq!(
            Value::Object(call.arguments),
            arguments,
            "{how}, {name}: {parameters}"
        );
    }
}

#[test]
fn without_a_discriminator_the_first_alternative_that_fits_as_a_whole_is_chosen() {
    let by_keys = json!({"anyOf": [
        {"type": "object", "properties": {"id": {"type": "integer"}, "a": {"type": "string"}}, "required": ["id", "a"], "additionalProperties": false},
        {"type": "object", "properties": {"id": {"type": "string"}, "b": {"type": "string"}}, "required": ["id", "b"], "additionalProperties": false}
    ]});
    let by_type = json!({"anyOf": [
        {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]},
        {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}
    ]});
    let lists = json!({"anyOf": [
        {"type": "array", "items": {"type": "integer"}},
        {"type": "array", "items": {"type": "string"}}
    ]});
    for (union, value) in [
        (&by_keys, json!({"id": 7, "a": "7"})),
        (&by_keys, json!({"id": "7", "b": "7"})),
        (&by_type, json!({"id": 7})),
        (&by_type, json!({"id": "007"})),
        (&by_type, json!({"id": "seven"})),
        (&lists, json!([1, 2])),
        (&lists, json!(["1", "b"])),
    ] {
        check(&object("v", union), json!({"v": value}), "one");
        let list = json!({"type": "array", "items": union});
        check(&object("v", &list), json!({"v": [value, value]}), "list");
    }
}

#[test]
fn a_text_stays_a_string_only_where_that_string_is_admitted() {
    let mode = json!({"anyOf": [{"type": "integer", "minimum": 0}, {"enum": ["auto", "off"]}, {"type": "null"}]});
    let flag = json!({"anyOf": [{"const": "auto"}, {"type": "boolean"}]});
    let date = json!({"anyOf": [{"type": "string", "pattern": "^\\d+-\\d+$"}, {"type": "number"}]});
    let choice = json!({"anyOf": [{"enum": ["a", "b"], "type": "string"}, {"type": "null"}]});
    for (union, written, meant) in [
        (&mode, "5", json!(5)),
        (&mode, "auto", json!("auto")),
        (&mode, "AUTO", json!("auto")),
        (&mode, "null", json!(null)),
        (&flag, "auto", json!("auto")),
        (&flag, "true", json!(true)),
        (&date, "1-2", json!("1-2")),
        (&date, "2.0", json!(2.0)),
        (&choice, "b", json!("b")),
        (&choice, "null", json!(null)),
    ] {
        for (name, call) in calls(&object("v", union), &json!({"v": written})) {
            assert!(call.is_ready(), "{name}, {written}: {:?}", call.problems);
            assert_eq!(call.arguments["v"], meant, "{name}, {written}: {union}");
        }
    }
    for (union, written) in [
        (&mode, "-5"),
        (&mode, "on"),
        (&flag, "maybe"),
        (&choice, "c"),
    ] {
        for (name, call) in calls(&object("v", union), &json!({"v": written})) {
            assert!(
                !call.is_ready() && call.problems[0].path == "/v",
                "{name}, {written}"
            );
        }
    }
}

#[test]
fn a_value_that_names_no_alternative_is_told_which_there_are() {
    let [circle, square] = shapes(|name| json!({"const": name}));
    let union = json!({"oneOf": [circle, square]});
    for (parameters, arguments, path) in [
        (
            object("v", &union),
            json!({"v": {"kind": "sqare", "id": "1"}}),
            "/v/kind",
        ),
        (
            json!({"type": "object", "oneOf": [circle, square]}),
            json!({"kind": "sqare", "id": "1"}),
            "/kind",
        ),
    ] {
        for (name, call) in calls(&parameters, &arguments) {
            let [problem] = call.problems.as_slice() else {
                panic!("{name}: {:?}", call.problems);
            };
            assert_eq!(
                (problem.code.as_str(), problem.path.as_str()),
                ("not_in_enum", path),
                "{name}"
            );
            assert_eq!(problem.expected, "circle, square", "{name}");
            assert_eq!(problem.suggestions, ["square"], "{name}");
        }
    }
}

#[test]
fn a_value_of_the_chosen_alternative_is_told_what_is_wrong_with_it() {
    let [circle, square] = shapes(|name| json!({"const": name}));
    let union = json!({"oneOf": [circle, square]});
    for (value, problem) in [
        (
            json!({"kind": "circle", "id": "seven"}),
            "type_mismatch:/v/id",
        ),
        (json!({"kind": "circle"}), "missing_parameter:/v/id"),
        (
            json!({"kind": "square", "id": "1", "radius": "1"}),
            "unknown_parameter:/v/radius",
        ),
    ] {
        for (name, call) in calls(&object("v", &union), &json!({"v": value})) {
            let found = call
                .problems
                .iter()
                .map(|problem| format!("{}:{}", problem.code.as_str(), problem.path));
            assert_eq!(found.collect::<Vec<_>>(), [problem], "{name}: {value}");
        }
    }
}

#[test]
fn unions_within_unions_end_in_bounded_work() {
    // Each level has two alternatives that differ in nothing but the last value.
    let mut parameters = object("v", &json!({"$ref": "#/$defs/tree"}));
    parameters["$defs"] = json!({"tree": {"anyOf": [
        {"type": "object", "properties": {"down": {"$ref": "#/$defs/tree"}, "n": {"type": "integer"}}},
        {"type": "object", "properties": {"down": {"$ref": "#/$defs/tree"}, "n": {"type": "boolean"}}}
    ]}});
    let tool = Tool::new("t", "", parameters).read_only();
    let catalogue = Catalogue::new(vec![tool], vec![]).unwrap();
    let depth = 24;
    let (open, close) = ("<down>".repeat(depth), "</down>".repeat(depth));
    let text = format!("<ACTION><t><v>{open}<n>x</n>{close}</v></t></ACTION>");
    let parsed = parse(&text, &catalogue, &Policy::default());
    assert!(!parsed.calls[0].is_ready());
}
