//! JSON as messages and back, over every shape of field.

use prost_reflect::prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, Value as Field};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, EnumValueDescriptorProto, FieldDescriptorProto,
    FileDescriptorProto, FileDescriptorSet, MessageOptions, OneofDescriptorProto,
    field_descriptor_proto::{Label, Type},
};
use serde_json::{Value, json};

use super::{field_path, to_message, to_message_without_unknown, to_text, to_value};

fn field(number: i32, name: &str, kind: Type) -> FieldDescriptorProto {
    FieldDescriptorProto {
        name: Some(name.to_owned()),
        number: Some(number),
        label: Some(Label::Optional.into()),
        r#type: Some(kind.into()),
        ..Default::default()
    }
}

fn typed(number: i32, name: &str, kind: Type, type_name: &str) -> FieldDescriptorProto {
    FieldDescriptorProto {
        type_name: Some(type_name.to_owned()),
        ..field(number, name, kind)
    }
}

fn repeated(field: FieldDescriptorProto) -> FieldDescriptorProto {
    FieldDescriptorProto {
        label: Some(Label::Repeated.into()),
        ..field
    }
}

fn in_oneof(field: FieldDescriptorProto) -> FieldDescriptorProto {
    FieldDescriptorProto {
        oneof_index: Some(0),
        ..field
    }
}

fn fields() -> Vec<FieldDescriptorProto> {
    vec![
        field(1, "big_number", Type::Int64),
        field(2, "small", Type::Uint32),
        field(3, "real", Type::Double),
        field(4, "narrow", Type::Float),
        field(5, "flag", Type::Bool),
        field(6, "text", Type::String),
        field(7, "raw", Type::Bytes),
        typed(8, "colour", Type::Enum, ".test.Shapes.Colour"),
        repeated(field(9, "list", Type::Int32)),
        repeated(typed(
            10,
            "counts",
            Type::Message,
            ".test.Shapes.CountsEntry",
        )),
        typed(11, "inner", Type::Message, ".test.Shapes"),
        in_oneof(field(12, "this", Type::String)),
        in_oneof(field(13, "that", Type::String)),
        typed(14, "open", Type::Message, ".google.protobuf.Struct"),
        typed(15, "any_value", Type::Message, ".google.protobuf.Value"),
        typed(16, "wrapped", Type::Message, ".google.protobuf.Int64Value"),
        typed(17, "time", Type::Message, ".google.protobuf.Timestamp"),
        typed(18, "held", Type::Message, ".google.protobuf.Any"),
        typed(19, "span", Type::Message, ".google.protobuf.Duration"),
        typed(
            20,
            "nothing_at_all",
            Type::Enum,
            ".google.protobuf.NullValue",
        ),
        repeated(typed(21, "many", Type::Message, ".google.protobuf.Any")),
        field(22, "unsigned", Type::Uint64),
    ]
}

/// A message with a field of each kind.
fn shapes() -> MessageDescriptor {
    let entry = DescriptorProto {
        name: Some("CountsEntry".into()),
        field: vec![
            field(1, "key", Type::Int32),
            field(2, "value", Type::String),
        ],
        options: Some(MessageOptions {
            map_entry: Some(true),
            ..Default::default()
        }),
        ..Default::default()
    };
    let value = |(name, number): (&str, i32)| EnumValueDescriptorProto {
        name: Some(name.to_owned()),
        number: Some(number),
        options: None,
    };
    let colour = EnumDescriptorProto {
        name: Some("Colour".into()),
        value: [("COLOUR_NONE", 0), ("COLOUR_RED", 1)].map(value).to_vec(),
        ..Default::default()
    };
    let message = DescriptorProto {
        name: Some("Shapes".into()),
        field: fields(),
        nested_type: vec![entry],
        enum_type: vec![colour],
        oneof_decl: vec![OneofDescriptorProto {
            name: Some("choice".into()),
            options: None,
        }],
        ..Default::default()
    };
    let imports = ["struct", "wrappers", "timestamp", "any", "duration"];
    let file = FileDescriptorProto {
        name: Some("test.proto".into()),
        package: Some("test".into()),
        syntax: Some("proto3".into()),
        dependency: imports
            .map(|name| format!("google/protobuf/{name}.proto"))
            .to_vec(),
        message_type: vec![message],
        ..Default::default()
    };
    let mut pool = DescriptorPool::global();
    pool.add_file_descriptor_set(FileDescriptorSet { file: vec![file] })
        .unwrap();
    pool.get_message_by_name("test.Shapes").unwrap()
}

fn read(value: &Value) -> DynamicMessage {
    to_message(&shapes(), value).unwrap_or_else(|wrong| unreachable!("{value}: {wrong:?}"))
}

fn written(message: &DynamicMessage) -> Value {
    to_value(message).unwrap()
}

#[test]
fn every_kind_of_field_goes_there_and_back() {
    let value = json!({
        "bigNumber": -9007199254740993i64, "small": 4294967295u32, "real": 0.1, "narrow": 1.5, "flag": true,
        "text": "文", "raw": "AAEC", "colour": "COLOUR_RED", "list": [1, -2], "counts": {"7": "seven"},
        "inner": {"text": "deep"}, "this": "x", "open": {"a": [1.5, null, "s", {"b": true}]},
        "anyValue": null, "wrapped": 9007199254740993i64, "time": "2026-01-31T12:00:00Z"
    });
    let answer = written(&read(&value));
    for (key, expected) in value.as_object().unwrap() {
        if key != "inner" {
            assert_eq!(&answer[key], expected, "{key}");
        }
    }
    assert_eq!(answer["inner"]["text"], "deep");
}

#[test]
fn unknown_fields_are_ignored_at_every_depth_where_a_protocol_says_so() {
    let newer = json!({"text": "a", "mood": {"x": 1}, "inner": {"text": "b", "mood": null}});
    let lenient = to_message_without_unknown(&shapes(), &newer).unwrap();
    let known = json!({"text": "a", "inner": {"text": "b"}});
    assert_eq!(written(&lenient), written(&read(&known)));
    assert_eq!(to_message(&shapes(), &newer).unwrap_err().len(), 2);
    let wrong = to_message_without_unknown(&shapes(), &json!({"mood": 1, "flag": "x"}));
    assert_eq!(wrong.unwrap_err()[0].pointer, "/flag");
}

#[test]
fn other_spellings_that_protobuf_allows_are_read() {
    let value =
        json!({"big_number": "-5", "colour": 1, "raw": "_-8=", "real": "NaN", "text": null});
    let answer = written(&read(&value));
    assert_eq!(
        (&answer["bigNumber"], &answer["colour"]),
        (&json!(-5), &json!("COLOUR_RED"))
    );
    assert_eq!(
        (&answer["raw"], &answer["real"]),
        (&json!("/+8="), &json!("NaN"))
    );
}

#[test]
fn what_the_conformance_suite_of_protobuf_reads_is_read_and_written_as_it_says() {
    let duration = "type.googleapis.com/google.protobuf.Duration";
    for (name, given, written) in [
        ("bigNumber", "5.0", r#""5""#),
        ("bigNumber", "1e3", r#""1000""#),
        ("bigNumber", "-2.50e1", r#""-25""#),
        ("bigNumber", r#""1e5""#, r#""100000""#),
        ("bigNumber", r#""100000.000""#, r#""100000""#),
        (
            "bigNumber",
            "-9223372036854775808",
            r#""-9223372036854775808""#,
        ),
        (
            "unsigned",
            "18446744073709551615",
            r#""18446744073709551615""#,
        ),
        ("small", "4.294967295e9", "4294967295"),
        ("list", "[1, 2e0, 3.0]", "[1,2,3]"),
        ("wrapped", "5.0", r#""5""#),
        ("real", r#""2.5""#, "2.5"),
        ("real", r#""1.5e3""#, "1500.0"),
        ("real", r#""-Infinity""#, r#""-Infinity""#),
        ("narrow", r#""1.1""#, "1.1"),
        ("span", r#""-0.5s""#, r#""-0.500s""#),
        ("span", r#""-1.000000005s""#, r#""-1.000000005s""#),
        (
            "span",
            r#""-315576000000.999999999s""#,
            r#""-315576000000.999999999s""#,
        ),
        (
            "time",
            r#""1969-12-31T23:59:59.5Z""#,
            r#""1969-12-31T23:59:59.500Z""#,
        ),
        (
            "time",
            r#""2026-01-31T20:00:00+08:00""#,
            r#""2026-01-31T12:00:00Z""#,
        ),
        ("nothingAtAll", "null", ""),
        ("held", "{}", "{}"),
        ("many", "[{}]", "[{}]"),
        (
            "held",
            r#"{"text": "a", "@type": "x.test/test.Shapes", "list": [1]}"#,
            r#"{"@type":"x.test/test.Shapes","text":"a","list":[1]}"#,
        ),
        (
            "held",
            &format!(r#"{{"@type": "{duration}", "value": "-0.5s"}}"#),
            &format!(r#"{{"@type":"{duration}","value":"-0.500s"}}"#),
        ),
        (
            "held",
            &format!(
                r#"{{"@type": "a/google.protobuf.Any", "value": {{"@type": "{duration}", "value": "1s"}}}}"#
            ),
            &format!(
                r#"{{"@type":"a/google.protobuf.Any","value":{{"@type":"{duration}","value":"1s"}}}}"#
            ),
        ),
    ] {
        let object: Value = serde_json::from_str(&format!("{{\"{name}\": {given}}}")).unwrap();
        let expected = match written {
            "" => "{}".to_owned(),
            written => format!("{{\"{name}\":{written}}}"),
        };
        assert_eq!(
            to_text(&read(&object)).unwrap(),
            expected,
            "{name}: {given}"
        );
    }
}

#[test]
fn null_beside_a_field_of_the_same_choice_is_no_field() {
    for object in [
        json!({"this": "a", "that": null}),
        json!({"that": null, "this": "a"}),
    ] {
        assert_eq!(
            to_text(&read(&object)).unwrap(),
            r#"{"this":"a"}"#,
            "{object}"
        );
    }
}

#[test]
fn what_json_cannot_express_is_not_written() {
    let part = |name: &str, value: Field| {
        let mut message = DynamicMessage::new(shapes());
        message.set_field_by_name(name, value);
        message
    };
    let inner = |name: &str, parts: &[(&str, Field)]| {
        let pool = DescriptorPool::global();
        let held = pool
            .get_message_by_name(&format!("google.protobuf.{name}"))
            .unwrap();
        let mut message = DynamicMessage::new(held);
        for (name, value) in parts {
            message.set_field_by_name(name, value.clone());
        }
        Field::Message(message)
    };
    for message in [
        part(
            "span",
            inner(
                "Duration",
                &[("seconds", Field::I64(1)), ("nanos", Field::I32(-1))],
            ),
        ),
        part(
            "span",
            inner(
                "Duration",
                &[("seconds", Field::I64(-1)), ("nanos", Field::I32(1))],
            ),
        ),
        part(
            "time",
            inner("Timestamp", &[("seconds", Field::I64(i64::MAX))]),
        ),
        part(
            "any_value",
            inner("Value", &[("number_value", Field::F64(f64::NAN))]),
        ),
        part(
            "held",
            inner(
                "Any",
                &[("type_url", Field::String("a/test.Nothing".into()))],
            ),
        ),
    ] {
        assert!(
            to_value(&message).is_err() && to_text(&message).is_err(),
            "{message:?}"
        );
    }
}

/// Puts a message into as many of `Any`, each in the next.
fn in_anys(count: usize) -> DynamicMessage {
    let mut held = prost_types::Any::default();
    for _ in 0..count {
        held = prost_types::Any {
            type_url: "a/google.protobuf.Any".to_owned(),
            value: held.encode_to_vec(),
        };
    }
    let any = DescriptorPool::global().get_message_by_name("google.protobuf.Any");
    DynamicMessage::decode(any.unwrap(), held.encode_to_vec().as_slice()).unwrap()
}

#[test]
fn messages_in_one_another_are_written_down_to_a_bound() {
    assert!(to_value(&in_anys(100)).is_ok());
    for count in [128, 20_000] {
        let message = in_anys(count);
        let failure = to_value(&message).unwrap_err().to_string();
        assert!(
            failure.ends_with("too many messages in one another"),
            "{failure}"
        );
        assert!(to_text(&message).is_err());
    }
}

/// Reads one field and expects it to be refused at its place.
fn check_refused(name: &str, value: &str) {
    let object: Value = serde_json::from_str(&format!("{{\"{name}\": {value}}}")).unwrap();
    let wrong = to_message(&shapes(), &object).unwrap_err();
    assert!(
        wrong[0].pointer.starts_with(&format!("/{name}")),
        "{name}: {value}: {wrong:?}"
    );
    assert!(!wrong[0].message.is_empty());
}

#[test]
fn what_a_field_cannot_hold_exactly_is_refused() {
    for (name, value) in [
        ("bigNumber", "9223372036854775808"),
        ("bigNumber", "1.5"),
        ("bigNumber", "1e-1"),
        ("bigNumber", "1e400"),
        ("bigNumber", "\"1.5\""),
        ("bigNumber", "\" 1\""),
        ("bigNumber", "\"1 \""),
        ("bigNumber", "\"+1\""),
        ("bigNumber", "\"01\""),
        ("bigNumber", "\"\""),
        ("bigNumber", "9223372036854775808.0"),
        ("unsigned", "-1.0"),
        ("list", "[1.5]"),
        ("list", "[null]"),
        ("counts", "{\"1\": null}"),
        ("small", "-1"),
        ("small", "4294967296"),
        ("real", "9007199254740993"),
        ("real", "1e400"),
        ("real", "\"much\""),
        ("real", "\"\""),
        ("real", "\"1.5 \""),
        ("real", "\"inf\""),
        ("real", "\"1e400\""),
        ("real", "\"9007199254740993\""),
        ("span", "\"1\""),
        ("span", "\"1.5m\""),
        ("span", "\"315576000001s\""),
        ("time", "\"2026-01-31t12:00:00Z\""),
        ("time", "\"2026-01-31T12:00:00z\""),
        ("held", "{\"value\": 1}"),
        ("held", "{\"@type\": \"\", \"value\": \"\"}"),
        ("held", "{\"@type\": \"type.test/test.Nothing\"}"),
        (
            "held",
            "{\"@type\": \"type.test/test.Shapes\", \"nothing\": 1}",
        ),
        (
            "held",
            "{\"@type\": \"type.test/google.protobuf.Duration\", \"value\": \"1\"}",
        ),
        ("narrow", "1e39"),
        ("flag", "\"true\""),
        ("text", "5"),
        ("raw", "\"***\""),
        ("colour", "\"COLOUR_BLUE\""),
        ("list", "{}"),
        ("list", "[1, \"x\"]"),
        ("counts", "[]"),
        ("counts", "{\"seven\": \"x\"}"),
        ("inner", "{\"nothing\": 1}"),
        ("open", "{\"a\": 9007199254740993}"),
        ("wrapped", "\"x\""),
        ("time", "\"yesterday\""),
        ("time", "5"),
        ("nothing", "1"),
    ] {
        check_refused(name, value);
    }
}

#[test]
fn fields_that_exclude_each_other_are_refused_and_arguments_must_be_an_object() {
    let wrong = to_message(&shapes(), &json!({"this": "a", "that": "b"})).unwrap_err();
    assert_eq!(
        (wrong[0].pointer.as_str(), &*wrong[0].code),
        ("/that", "many_variants")
    );
    assert_eq!(
        to_message(&shapes(), &json!([])).unwrap_err()[0].pointer,
        ""
    );
}

#[test]
fn one_field_under_both_of_its_names_is_refused() {
    for value in [
        json!({"bigNumber": 1, "big_number": 2}),
        json!({"big_number": 0, "bigNumber": 2}),
    ] {
        let wrong = to_message(&shapes(), &value).unwrap_err();
        assert_eq!(&*wrong[0].code, "duplicate_parameter", "{value}");
    }
}

#[test]
fn text_is_proto3_json() {
    let message = read(&json!({"bigNumber": 9007199254740993i64, "small": 0, "real": 0.5}));
    let text = to_text(&message).unwrap();
    assert_eq!(text, r#"{"bigNumber":"9007199254740993","real":0.5}"#);
}

#[test]
fn places_are_named_by_field_path() {
    for (pointer, path) in [
        ("", ""),
        ("/bigNumber", "big_number"),
        ("/inner/anyValue", "inner.any_value"),
        ("/inner/list/2", "inner.list[2]"),
        ("/counts/a~1b", "counts[a/b]"),
        ("/inner/nothing/0", "inner.nothing.0"),
    ] {
        assert_eq!(field_path(&shapes(), pointer), path, "{pointer}");
    }
}
