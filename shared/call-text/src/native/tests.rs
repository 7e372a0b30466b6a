use call_catalogue::Tool;
use serde_json::json;

use super::*;
use crate::parse;

fn catalogue() -> Catalogue {
    let schema = json!({"properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]});
    Catalogue::new(vec![Tool::new("weather", "", schema)], vec![]).unwrap()
}

const EXPECTED: &str = r#"{"arguments":{"city":"Oslo","days":3},"tool":"weather"}"#;

#[test]
fn every_shape_gives_the_same_call() {
    let whole = json!({"tool_calls":[{"id":"c1","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Oslo\",\"days\":3}"}}]});
    let content = json!([{"type":"text","text":"hm"},{"type":"tool_use","id":"c1","name":"weather","input":{"city":"Oslo","days":3}}]);
    for calls in [read(&whole).calls, read(&content).calls] {
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

#[test]
fn every_shape_of_a_collected_call_is_read() {
    let arguments = json!({"city": "Oslo", "days": 3});
    let text = arguments.to_string();
    let openai =
        json!({"id": "c1", "type": "function", "function": {"name": "weather", "arguments": text}});
    let anthropic = json!({"type": "tool_use", "id": "c1", "name": "weather", "input": arguments});
    for given in [
        openai.clone(),
        json!([openai]),
        json!({"tool_calls": [openai]}),
        json!({"role": "assistant", "content": null, "tool_calls": [openai]}),
        json!({"choices": [{"index": 0, "message": {"role": "assistant", "tool_calls": [openai]}}]}),
        json!({"role": "assistant", "function_call": {"name": "weather", "arguments": text}}),
        json!({"output": [{"type": "reasoning"}, {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": text}]}),
        anthropic.clone(),
        json!([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "I look."}, anthropic]),
        json!({"role": "assistant", "content": [anthropic]}),
        json!({"name": "weather", "arguments": arguments}),
        json!([{"name": "weather", "arguments": text}]),
        json!({"toolName": "weather", "arguments": arguments}),
    ] {
        let read = read(&given);
        assert_eq!(read.remarks, [], "{given}");
        let typed = typed(&read.calls, &catalogue(), &Policy::default());
        assert_eq!(typed.len(), 1, "{given}");
        assert_eq!(typed[0].canonical(), EXPECTED, "{given}");
    }
}

#[test]
fn what_is_no_call_is_remarked_on_where_it_stands() {
    let good = json!({"name": "weather", "arguments": {"city": "Oslo", "days": 3}});
    for (given, calls, places) in [
        (json!([good, {"tool": 5}, good]), 2, vec!["/1"]),
        (json!(["weather", 7, null]), 0, vec!["/0", "/1"]),
        (json!("weather"), 0, vec!["what was given"]),
        (
            json!({"weather": {"city": "Oslo"}}),
            0,
            vec!["what was given"],
        ),
        (
            json!({"content": [{"type": "server_tool_use", "name": "weather", "input": {}}], "role": "assistant"}),
            0,
            vec!["/content/0"],
        ),
        (json!([]), 0, vec![]),
        (json!({"role": "assistant", "content": "hello"}), 0, vec![]),
    ] {
        let read = read(&given);
        assert_eq!(read.calls.len(), calls, "{given}");
        assert_eq!(
            read.remarks.len(),
            places.len(),
            "{given}: {:?}",
            read.remarks
        );
        for (remark, place) in read.remarks.iter().zip(places) {
            assert!(remark.message.contains(place), "{}", remark.message);
        }
    }
    let many = read(&json!(vec![1; 100]));
    assert_eq!(many.remarks.len(), 17);
    assert!(many.remarks[16].message.starts_with("84 "));
}

#[test]
fn calls_beyond_the_limit_are_counted_in_a_refused_one() {
    let call = NativeCall {
        name: "weather".into(),
        arguments_json: r#"{"city":"Oslo"}"#.into(),
        ..NativeCall::default()
    };
    let policy = Policy::default();
    let typed = typed(&vec![call; 70], &catalogue(), &policy);
    assert_eq!(typed.len(), policy.limits.calls + 1);
    let (last, fine) = typed.split_last().unwrap();
    assert!(fine.iter().all(Call::is_ready));
    assert!(
        last.problems[0].message.contains("6 were not read"),
        "{:?}",
        last.problems
    );
}
