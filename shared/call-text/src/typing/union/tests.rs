mod spellings;

use call_catalogue::{Catalogue, Tool};
use serde_json::{Map, Value, json};

use self::spellings::calls;
use crate::{Policy, parse};

/// The schema of a property that names an alternative.
type Mark = fn(&str) -> Value;

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
    let marks: [(&str, Mark); 4] = [
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

/// Checks that arguments mean themselves, however they are written.
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
            json!({"v": {"kind": "squares", "id": "1"}}),
            "/v/kind",
        ),
        (
            json!({"type": "object", "oneOf": [circle, square]}),
            json!({"kind": "squares", "id": "1"}),
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
    // Each level has two alternatives that differ only in the last value.
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
