//! Every node type by data: settings and inputs in, outputs or the code of the failure out.

mod agent;
mod control;
mod values;

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::*;
use workflow_domain::compile::compile;
use workflow_domain::engine::Outcome;
use workflow_domain::evaluate::run_pure;
use workflow_domain::interface::bind;
use workflow_domain::node_type::{Effect, NodeCall, Settled, Step};
use workflow_domain::workflow::{Form, NodeEntry, OutputMapping, Workflow};

/// Runs a node by itself with `inputs` preset and returns its outputs or the code of its failure.
fn run(full_type: &str, config: Value, inputs: Value) -> Result<Value, String> {
    let catalogue = builtin();
    let outputs = catalogue
        .get(full_type)
        .unwrap()
        .definition()
        .shape
        .outputs
        .clone();
    let mapping = |key: &str| OutputMapping {
        key: key.to_owned(),
        node: "n".to_owned(),
        slot: key.to_owned(),
        pointer: String::new(),
    };
    let workflow = Workflow {
        form: Form::Storage,
        name: String::new(),
        description: String::new(),
        nodes: vec![NodeEntry {
            presets: inputs.as_object().cloned().unwrap(),
            config: config.as_object().cloned().unwrap().into(),
            pointer: "/nodes/0".to_owned(),
            ..NodeEntry::new("n", full_type)
        }],
        edges: Vec::new(),
        interface_inputs: Vec::new(),
        interface_outputs: outputs.to_vec(),
        output_mappings: outputs.iter().map(|slot| mapping(&slot.key)).collect(),
    };
    let plan =
        compile(&workflow, &catalogue).map_err(|violations| violations[0].code.to_string())?;
    let inputs = bind(&[], &Map::new()).unwrap();
    match run_pure(Arc::new(plan), inputs).unwrap() {
        Outcome::Succeeded(outputs) => Ok(Value::Object(outputs)),
        Outcome::Failed { failure, .. } => Err(failure.code.clone()),
        Outcome::TooLarge { .. } => Err("result_too_large".to_owned()),
    }
}

#[test]
fn text_merge_joins_with_an_unescaped_separator() {
    for (inputs, expected) in [
        (json!({"text_inputs": ["a", "b"]}), "a\nb"),
        (
            json!({"text_inputs": ["a", "b"], "separator": "\\t|\\\\"}),
            "a\t|\\b",
        ),
        (json!({"text_inputs": "alone"}), "alone"),
        (json!({"text_inputs": []}), ""),
        (
            json!({"text_inputs": ["a", 1, 2.50, false], "separator": ""}),
            "a12.5false",
        ),
        (
            json!({"text_inputs": ["中", "文"], "separator": "、"}),
            "中、文",
        ),
    ] {
        assert_eq!(
            run("core:TextMerge", json!({}), inputs),
            Ok(json!({"merged_text": expected}))
        );
    }
    let huge = json!({"text_inputs": vec!["x".repeat(400_000); 2]});
    assert_eq!(
        run("core:TextMerge", json!({}), huge),
        Err("value_too_large".into())
    );
}

#[test]
fn format_prompt_fills_every_gap() {
    for (inputs, expected) in [
        (
            json!({"template": "Hi {name}!", "variables": {"name": "Ada"}}),
            Ok("Hi Ada!"),
        ),
        (
            json!({"template": "Hi {name}!", "name": "Bo", "variables": {"name": "Ada"}}),
            Ok("Hi Bo!"),
        ),
        (
            json!({"template": "{o} {n} {l}", "o": {"a": 1}, "n": 1.50, "l": [null]}),
            Ok("{\"a\":1} 1.5 [null]"),
        ),
        (
            json!({"template": "{{x}} {\"k\": {v}}", "v": 1}),
            Ok("{x} {\"k\": 1}"),
        ),
        (json!({"template": "{x}{x}", "x": "{y}"}), Ok("{y}{y}")),
        (
            json!({"template": "{a}{b}", "a": "1"}),
            Err("missing_variable"),
        ),
        (json!({"template": ""}), Ok("")),
    ] {
        let expected = expected
            .map(|text| json!({"prompt": text}))
            .map_err(str::to_owned);
        assert_eq!(run("core:FormatPrompt", json!({}), inputs), expected);
    }
    let huge = json!({"template": "{x}".repeat(100), "x": "y".repeat(10_000)});
    assert_eq!(
        run("core:FormatPrompt", json!({}), huge),
        Err("value_too_large".into())
    );
}

#[test]
fn json_selector_follows_rfc_9535() {
    let store = json!({"book": [{"t": "A", "p": 8.95}, {"t": "B", "p": 12.990}], "n": null});
    for (json, path, expected) in [
        (
            store.clone(),
            "$.book[0].t",
            Ok(json!({"value": "A", "values": ["A"], "count": 1})),
        ),
        (
            store.clone(),
            "$..t",
            Ok(json!({"value": "A", "values": ["A", "B"], "count": 2})),
        ),
        (
            store.clone(),
            "$.book[?@.p < 10].t",
            Ok(json!({"value": "A", "values": ["A"], "count": 1})),
        ),
        (
            store.clone(),
            "$.book[-1]['t']",
            Ok(json!({"value": "B", "values": ["B"], "count": 1})),
        ),
        (
            store.clone(),
            "$.n",
            Ok(json!({"value": null, "values": [null], "count": 1})),
        ),
        (store.clone(), "$.none", Err("nothing_found")),
        (
            json!("{\"a\": [1, 2]}"),
            "$.a[1]",
            Ok(json!({"value": 2, "values": [2], "count": 1})),
        ),
        (
            json!("no json"),
            "$",
            Ok(json!({"value": "no json", "values": ["no json"], "count": 1})),
        ),
        (store, "book", Err("invalid_path")),
    ] {
        let inputs = json!({"json": json, "path": path});
        assert_eq!(
            run("core:JsonSelector", json!({}), inputs),
            expected.map_err(str::to_owned),
            "{path}"
        );
    }
    let optional = json!({"json": {}, "path": "$.a", "required": false});
    let nothing = json!({"value": null, "values": [], "count": 0});
    assert_eq!(run("core:JsonSelector", json!({}), optional), Ok(nothing));
}

#[test]
fn json_selector_keeps_every_digit() {
    let json: Value = serde_json::from_str(r#"{"n": 12345678901234567890.1234567890}"#).unwrap();
    let outputs = run(
        "core:JsonSelector",
        json!({}),
        json!({"json": json, "path": "$.n"}),
    )
    .unwrap();
    assert_eq!(
        outputs["value"].to_string(),
        "12345678901234567890.1234567890"
    );
}

#[test]
fn math_operation_calculates_by_mode() {
    for (mode, inputs, expected) in [
        ("add", json!({"a": 1, "b": 2.5}), json!(3.5)),
        ("add", json!({"a": 1}), json!(1)),
        ("subtract", json!({"a": 1, "b": 3}), json!(-2)),
        ("multiply", json!({"a": 4, "b": 2.5}), json!(10)),
        (
            "multiply_add",
            json!({"val1": 2, "val2": 3, "val3": 4}),
            json!(10),
        ),
        ("divide", json!({"a": 1, "b": 4}), json!(0.25)),
        ("power", json!({"base": 3}), json!(9)),
        ("power", json!({"base": 2, "exponent": 10}), json!(1024)),
        ("power", json!({"base": 2, "exponent": 0}), json!(1)),
        ("logarithm", json!({"value": 8, "base": 2}), json!(3)),
        ("logarithm", json!({}), json!(0)),
        ("logarithm", json!({"value": -1}), json!(null)),
        ("logarithm", json!({"value": 2, "base": 1}), json!(null)),
        ("sqrt", json!({"value": 16}), json!(4)),
        ("inverse_sqrt", json!({"value": 4}), json!(0.5)),
        ("absolute", json!({"value": -3}), json!(3)),
        ("exp", json!({"value": 0}), json!(1)),
        ("min", json!({"a": 1, "b": -1}), json!(-1)),
        ("max", json!({"a": 1, "b": -1}), json!(1)),
        ("lessThan", json!({"a": 1, "b": 2}), json!(1)),
        ("greaterThan", json!({"a": 1, "b": 2}), json!(0)),
        ("sign", json!({"value": -0.5}), json!(-1)),
        ("sign", json!({"value": 0}), json!(0)),
        ("round", json!({"value": 2.5}), json!(3)),
        ("round", json!({"value": -2.5}), json!(-2)),
        ("round", json!({"value": 0.49999999999999994}), json!(0)),
        ("floor", json!({"value": -1.5}), json!(-2)),
        ("ceil", json!({"value": 1.2}), json!(2)),
        ("truncate", json!({"value": -1.7}), json!(-1)),
        ("fraction", json!({"value": 1.25}), json!(0.25)),
        ("fraction", json!({"value": -1.25}), json!(0.75)),
        ("modulo", json!({"a": -7, "b": 3}), json!(-1)),
        ("sin", json!({"value": 0}), json!(0)),
        ("cos", json!({"value": 0}), json!(1)),
        ("tan", json!({"value": 0}), json!(0)),
        ("asin", json!({"value": 2}), json!(null)),
        ("acos", json!({"value": 1}), json!(0)),
        ("atan", json!({"value": 0}), json!(0)),
        ("atan2", json!({"y": 0, "x": 1}), json!(0)),
        ("sinh", json!({"value": 0}), json!(0)),
        ("cosh", json!({"value": 0}), json!(1)),
        ("tanh", json!({"value": 0}), json!(0)),
        ("asinh", json!({"value": 0}), json!(0)),
        ("acosh", json!({"value": 1}), json!(0)),
        ("atanh", json!({"value": 0}), json!(0)),
        (
            "to_radians",
            json!({"degrees": 180}),
            json!(std::f64::consts::PI),
        ),
        (
            "to_degrees",
            json!({"radians": std::f64::consts::PI}),
            json!(180),
        ),
        ("add", json!({"a": 7, "clamp": true}), json!(1)),
        ("subtract", json!({"b": 7, "clamp": true}), json!(0)),
    ] {
        let config = json!({"operationMode": mode});
        assert_eq!(
            run("core:MathOperation", config, inputs),
            Ok(json!({"result": expected})),
            "{mode}"
        );
    }
}

#[test]
fn math_operation_fails_where_there_is_no_result() {
    for (mode, inputs) in [
        ("divide", json!({"a": 1, "b": 0})),
        ("divide", json!({"a": 1})),
        ("modulo", json!({"a": 1, "b": 0})),
        ("sqrt", json!({"value": -1})),
        ("inverse_sqrt", json!({"value": 0})),
        ("exp", json!({"value": 1000})),
    ] {
        let failed = run("core:MathOperation", json!({"operationMode": mode}), inputs);
        assert_eq!(failed, Err("undefined_result".into()), "{mode}");
    }
    assert_eq!(
        run(
            "core:MathOperation",
            json!({"operationMode": "x"}),
            json!({})
        ),
        Err("unknown_mode".into())
    );
    let named = json!({"operationMode": "multiply", "a": 6, "b": 7});
    assert_eq!(
        run("core:MathOperation", json!({}), named),
        Ok(json!({"result": 42}))
    );
    let mistyped = json!({"a": "six"});
    assert_eq!(
        run("core:MathOperation", json!({}), mistyped),
        Err("type_mismatch".into())
    );
}

/// Returns the effect that a node requests, and its outputs for an answer.
fn effect(
    full_type: &str,
    config: Value,
    inputs: Value,
    settled: Settled,
) -> (Effect, Result<Value, String>) {
    let catalogue = builtin();
    let node = catalogue.get(full_type).unwrap();
    let (config, presets) = (
        config.as_object().cloned().unwrap(),
        inputs.as_object().cloned().unwrap(),
    );
    let context = workflow_domain::node_type::ShapeContext {
        definition: node.definition(),
        config: &config,
        presets: &presets,
        connected: &[],
        interface_inputs: &[],
        interface_outputs: &[],
        own_interface: None,
    };
    let shape = node.shape(&context).unwrap();
    let value = |slot: &workflow_domain::slot::Slot| {
        presets
            .get(&*slot.key)
            .cloned()
            .map(Arc::new)
            .or(slot.default.clone())
            .map(Cow::Owned)
    };
    let values: Vec<_> = shape.inputs.iter().map(value).collect();
    let call = NodeCall {
        shape: &shape,
        config: &config,
        inputs: &values,
        id: "n",
        run_seed: 0,
        written: "",
    };
    let Ok(Step::Effect(effect)) = node.run(call) else {
        panic!("{full_type} asks for an effect")
    };
    let outputs = node
        .settle(call, settled)
        .map_err(|failure| failure.code.clone());
    (
        effect,
        outputs.map(|outputs| {
            json!(
                outputs
                    .iter()
                    .map(|value| value.as_ref().clone())
                    .collect::<Vec<_>>()
            )
        }),
    )
}

#[test]
fn execute_tool_calls_with_everything_that_is_named() {
    let inputs = json!({"tool_id": "f", "arguments": {"a": 1, "b": 2}, "b": 3, "c": [4]});
    let (asked, outputs) = effect(
        "core:ExecuteTool",
        json!({}),
        inputs,
        Settled::Tool {
            output: json!({"x": 1}),
            child_run_id: String::new(),
        },
    );
    let arguments = json!({"a": 1, "b": 3, "c": [4]})
        .as_object()
        .cloned()
        .unwrap();
    assert_eq!(
        asked,
        Effect::CallTool {
            tool_id: "f".into(),
            arguments
        }
    );
    let observed = "Observation: Tool f executed successfully. Result: {\"x\":1}";
    assert_eq!(
        outputs,
        Ok(json!([{"x": 1}, "succeeded", null, [], observed, "", []]))
    );
}

#[test]
fn a_failed_tool_fails_the_node_unless_it_goes_on() {
    let failure = Failure::invalid("file_not_found", "there is no such file");
    let settled = Settled::ToolFailed {
        status: "failed",
        failure,
    };
    let inputs = json!({"tool_id": "f"});
    let (_, outputs) = effect(
        "core:ExecuteTool",
        json!({}),
        inputs.clone(),
        settled.clone(),
    );
    assert_eq!(outputs, Err("file_not_found".into()));
    let (_, outputs) = effect(
        "core:ExecuteTool",
        json!({"continueOnError": true}),
        inputs,
        settled,
    );
    let error =
        json!({"code": "file_not_found", "message": "there is no such file", "retryable": false});
    let observed =
        "Observation: Error - Tool f failed (validation file_not_found): there is no such file";
    assert_eq!(
        outputs,
        Ok(json!([null, "failed", error, [], observed, "", []]))
    );
}

#[test]
fn script_reads_everything_that_is_named() {
    let inputs = json!({"code": "x", "inputs": {"a": 1}, "b": 2});
    let settled = Settled::Script {
        result: json!([1]),
        written: "o".into(),
        stderr: "e".into(),
    };
    let (asked, outputs) = effect(
        "core:Script",
        json!({"timeoutSeconds": 1.5}),
        inputs,
        settled,
    );
    let expected = Effect::RunScript {
        language: "python3".into(),
        code: "x".into(),
        input: json!({"a": 1, "b": 2}),
        wall_millis: Some(1_500),
        yields: None,
    };
    assert_eq!(asked, expected);
    assert_eq!(outputs, Ok(json!([[1], "o", "e"])));
}

#[test]
fn scripts_and_tools_yield_values_of_a_type() {
    let config = json!({"yields": "INTEGER"});
    let settled = Settled::Script {
        result: json!(null),
        written: json!([1, 2]),
        stderr: "e".into(),
    };
    let (asked, outputs) = effect("core:Script", config.clone(), json!({"code": "x"}), settled);
    let Effect::RunScript { yields, .. } = asked else {
        panic!("{asked:?}")
    };
    assert_eq!(yields.map(|data_flow| data_flow.name()), Some("INTEGER"));
    assert_eq!(outputs, Ok(json!([null, [1, 2], "e"])));
    for (output, yielded) in [
        (json!([1, 2]), Ok(json!([1, 2]))),
        (json!(3), Ok(json!([3]))),
        (json!(null), Ok(json!([]))),
        (json!([1, "a"]), Err("value_malformed".to_owned())),
    ] {
        let settled = Settled::Tool {
            output,
            child_run_id: String::new(),
        };
        let inputs = json!({"tool_id": "f"});
        let (_, outputs) = effect("core:ExecuteTool", config.clone(), inputs, settled);
        assert_eq!(outputs.map(|outputs| outputs[7].clone()), yielded);
    }
    let outcome = |output: Value| workflow_domain::tool::ToolOutcome {
        status: "succeeded",
        output,
        failure: None,
        observation: String::new(),
    };
    let settled = Settled::Calls(vec![outcome(json!([1, 2])), outcome(json!(3))]);
    let requests = json!({"requests": [{"toolName": "f"}, {"toolName": "g"}]});
    let (_, outputs) = effect("core:ExecuteTool", config, requests, settled);
    assert_eq!(outputs.unwrap()[7], json!([1, 2, 3]));
    let none = json!({"requests": []});
    let refused = run(
        "core:Script",
        json!({"yields": "STRING"}),
        json!({"code": "x"}),
    );
    assert_eq!(refused, Err("out_of_range".into()));
    assert!(run("core:ExecuteTool", json!({"yields": "OBJECT"}), none).is_ok());
}

#[test]
fn a_stream_of_values_is_a_text_of_lines() {
    for (stream, text) in [
        (json!("a\nb"), "a\nb"),
        (json!([{"n": 1}, "b", 2]), "{\"n\":1}\nb\n2"),
        (json!(5), "5"),
        (json!([]), ""),
    ] {
        let collected = run("core:StreamToString", json!({}), json!({"stream": stream}));
        assert_eq!(collected, Ok(json!({"text": text})));
    }
}

#[test]
fn every_node_type_says_what_it_is() {
    for node in builtin().all() {
        let definition = node.definition();
        assert!(definition.full_type.starts_with("core:") && !definition.description.is_empty());
        for slot in definition
            .shape
            .inputs
            .iter()
            .chain(definition.shape.outputs.iter())
        {
            assert!(
                !slot.description.is_empty(),
                "{} {}",
                definition.full_type,
                slot.key
            );
        }
    }
}
