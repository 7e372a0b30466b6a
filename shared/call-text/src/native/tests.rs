use serde_json::json;

use super::*;
use crate::{Tool, parse};

fn catalogue() -> Catalogue {
    let schema = json!({"properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]});
    Catalogue::new(vec![Tool::new("weather", "", schema)], vec![]).unwrap()
}

const EXPECTED: &str = r#"{"arguments":{"city":"Oslo","days":3},"tool":"weather"}"#;

#[test]
fn every_shape_gives_the_same_call() {
    let mut deltas = OpenAiDeltas::default();
    let mut named = deltas.push(
        &json!({"tool_calls":[{"index":0,"id":"c1","function":{"name":"weather","arguments":""}}]}),
    );
    for piece in ["{\"ci", "ty\":\"Oslo\",", "\"days\":3}"] {
        named.extend(
            deltas.push(&json!({"tool_calls":[{"index":0,"function":{"arguments":piece}}]})),
        );
    }
    assert_eq!(named, ["weather"]);
    let mut events = AnthropicEvents::default();
    events.push(&json!({"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"c1","name":"weather","input":{}}}));
    events.push(&json!({"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"city\":\"Oslo\","}}));
    events.push(&json!({"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"\"days\":3}"}}));
    let whole = json!({"tool_calls":[{"id":"c1","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Oslo\",\"days\":3}"}}]});
    let content = json!([{"type":"text","text":"hm"},{"type":"tool_use","id":"c1","name":"weather","input":{"city":"Oslo","days":3}}]);
    for calls in [
        deltas.finish(),
        events.finish(),
        openai_calls(&whole),
        anthropic_blocks(&content),
    ] {
        let typed = typed(&calls, &catalogue(), &Policy::default());
        assert_eq!(typed.len(), 1);
        assert_eq!(typed[0].canonical(), EXPECTED);
        assert_eq!(typed[0].provider_id, "c1");
        assert!(typed[0].is_ready());
    }
}

#[test]
fn text_comes_first_and_the_same_call_runs_once() {
    let native = |city: &str| {
        let calls = [NativeCall {
            id: "c1".into(),
            name: "weather".into(),
            arguments_json: format!("{{\"city\":\"{city}\",\"days\":3}}"),
        }];
        typed(&calls, &catalogue(), &Policy::default())
    };
    let text = "<ACTION><weather><city>Oslo</city><days>3</days></weather></ACTION>";
    for (text, city, ready) in [
        (text, "Oslo", vec!["Oslo"]),
        (text, "Rome", vec!["Oslo"]),
        ("no call", "Rome", vec!["Rome"]),
    ] {
        let mut parsed = parse(text, &catalogue(), &Policy::default());
        supplement(&mut parsed, native(city));
        let cities: Vec<_> = parsed
            .ready_calls()
            .map(|call| call.arguments["city"].as_str().unwrap())
            .collect();
        assert_eq!(cities, ready, "{text} {city}");
    }
}

#[test]
fn broken_arguments_are_a_problem_of_the_call() {
    for arguments in ["{\"city\":", "[1]", "{\"city\":\"a\",\"city\":\"b\"}"] {
        let calls = [NativeCall {
            id: String::new(),
            name: "weather".into(),
            arguments_json: arguments.into(),
        }];
        let typed = typed(&calls, &catalogue(), &Policy::default());
        assert!(!typed[0].problems.is_empty(), "{arguments}");
    }
}
