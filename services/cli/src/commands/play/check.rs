//! Compares a run with the expectations of a transcript.

use contracts::tavern::common::v1::{
    CallStatus, NodeState, Run, RunEvent, RunState, run_event::Kind,
};
use serde_json::Value;

use crate::timeline::name;

use super::transcript::{Expectation, ExpectedCall};

/// Returns every difference between a run and the expectations.
pub(crate) fn differences(expected: &Expectation, events: &[RunEvent], run: &Run) -> Vec<String> {
    let happened = Happened::of(events, run);
    let mut found = Vec::new();
    compare(&mut found, "state", &expected.state, &happened.state);
    if let Some(text) = &expected.text {
        compare(&mut found, "text", &text.text(), &happened.text);
    }
    if let Some(observations) = &expected.observations {
        let observations: Vec<_> = observations.iter().map(|lines| lines.text()).collect();
        compare(
            &mut found,
            "observations",
            &observations,
            &happened.observations,
        );
    }
    if let Some(calls) = &expected.calls {
        compare_calls(&mut found, calls, &happened.calls);
    }
    if let Some(result) = &expected.result {
        compare(&mut found, "result", result, &happened.result);
    }
    for node in &expected.nodes {
        if !happened.nodes.contains(node) {
            found.push(format!("node {node} must have succeeded, and did not"));
        }
    }
    found
}

/// Returns every difference between the turns of an agent and the expectations.
pub(crate) fn agent_differences(
    agent: &str,
    calls: Option<&[ExpectedCall]>,
    said: Option<&str>,
    events: &[RunEvent],
    turns: &[String],
) -> Vec<String> {
    let (mut made, mut text) = (Vec::new(), String::new());
    for run_id in turns {
        let run = Run {
            run_id: run_id.clone(),
            ..Run::default()
        };
        let happened = Happened::of(events, &run);
        made.extend(happened.calls);
        text.push_str(&happened.text);
    }
    let mut found = Vec::new();
    if let Some(calls) = calls {
        compare_calls(&mut found, calls, &made);
    }
    if let Some(said) = said.filter(|said| !text.contains(said)) {
        found.push(format!("it must have said {said:?}, and said {text:?}"));
    }
    let of = |difference: String| format!("{agent}: {difference}");
    found.into_iter().map(of).collect()
}

/// The events of a run in the terms of a transcript.
struct Happened {
    state: String,
    text: String,
    observations: Vec<String>,
    calls: Vec<MadeCall>,
    nodes: Vec<String>,
    result: Value,
}

/// A call that ended.
struct MadeCall {
    tool: String,
    arguments: Option<Value>,
    status: String,
    output: Value,
    error: String,
}

impl Happened {
    fn of(events: &[RunEvent], run: &Run) -> Self {
        let outcome = run.outcome.clone().unwrap_or_default();
        let mut happened = Self {
            state: name(
                RunState::try_from(run.state)
                    .unwrap_or_default()
                    .as_str_name(),
                "RUN_STATE_",
            ),
            text: String::new(),
            observations: Vec::new(),
            calls: Vec::new(),
            nodes: Vec::new(),
            result: json(&outcome.result_json),
        };
        let mut dispatched: Vec<(String, Value)> = Vec::new();
        for event in events {
            let own = event.run_id == run.run_id;
            match &event.kind {
                Some(Kind::Text(text)) if own => happened.text.push_str(&text.text),
                Some(Kind::Observation(observed)) if own => {
                    happened.observations.push(observed.text.clone())
                }
                Some(Kind::CallDispatched(call)) if own => {
                    dispatched.push((call.effect_id.clone(), json(&call.arguments_json)));
                }
                Some(Kind::CallSettled(settled)) if own => {
                    let result = settled.result.clone().unwrap_or_default();
                    let of_call = |(id, _): &&(String, Value)| *id == result.effect_id;
                    happened.calls.push(MadeCall {
                        arguments: dispatched
                            .iter()
                            .find(of_call)
                            .map(|(_, given)| given.clone()),
                        status: name(
                            CallStatus::try_from(result.status)
                                .unwrap_or_default()
                                .as_str_name(),
                            "CALL_STATUS_",
                        ),
                        output: json(&result.output_json),
                        error: result.error.unwrap_or_default().code,
                        tool: result.tool_id,
                    });
                }
                Some(Kind::NodeFinished(node)) if node.state() == NodeState::Succeeded => {
                    happened.nodes.push(node.node_id.clone());
                }
                _ => {}
            }
        }
        happened
    }
}

fn compare_calls(found: &mut Vec<String>, expected: &[ExpectedCall], made: &[MadeCall]) {
    compare(found, "number of calls", &expected.len(), &made.len());
    for (number, (expected, made)) in expected.iter().zip(made).enumerate() {
        let of = |what: &str| format!("{what} of call {number}");
        compare(found, &of("tool"), &expected.tool, &made.tool);
        compare(found, &of("status"), &expected.status, &made.status);
        if let Some(arguments) = &expected.arguments {
            compare(
                found,
                &of("arguments"),
                &Some(arguments.clone()),
                &made.arguments,
            );
        }
        if let Some(output) = &expected.output {
            compare(found, &of("output"), output, &made.output);
        }
        if let Some(error) = &expected.error {
            compare(found, &of("error"), error, &made.error);
        }
    }
}

pub(crate) fn compare<T: PartialEq + std::fmt::Debug>(
    found: &mut Vec<String>,
    what: &str,
    expected: &T,
    made: &T,
) {
    if expected != made {
        found.push(format!("{what} must be {expected:?}, and is {made:?}"));
    }
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or(Value::Null)
}
