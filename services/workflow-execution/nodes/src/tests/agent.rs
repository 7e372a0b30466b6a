//! The nodes of an agent.

use serde_json::{Value, json};

use super::*;
use workflow_domain::tool::{ToolOutcome, ToolRequest};

fn tools() -> Value {
    json!([
        {"name": "read", "description": "Reads.", "readOnly": true, "parallelSafe": true,
         "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}},
        {"name": "write", "description": "Writes {toolName}.",
         "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}},
    ])
}

fn parse(text: &str, more: Value) -> Value {
    let mut inputs = json!({"response": {"text": text}, "tools": tools(), "messages": []});
    inputs
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    run("core:ParseLlmDecision", json!({}), inputs).unwrap()
}

const READ: &str = "<ACTION><read><path>a</path></read></ACTION>";
const WRITE: &str = "<ACTION><write><path>a</path></write></ACTION>";

#[test]
fn calls_are_read_from_the_text_first_and_native_ones_are_their_supplement() {
    let native =
        json!([{"id": "n", "function": {"name": "write", "arguments": "{\"path\":\"b\"}"}}]);
    let parsed = parse(&format!("Look. {READ}"), json!({}));
    assert_eq!(parsed["reply_text"], "Look.");
    assert_eq!(
        parsed["tool_call_requests"],
        json!([{"id": "call_0", "index": 0, "toolName": "read", "arguments": {"path": "a"}, "source": "text",
                "needsConfirmation": false, "parallelSafe": true, "continueOnError": false, "problems": []}])
    );
    let parsed = parse(
        "No text call.",
        json!({"response": {"text": "x", "tool_calls": native}}),
    );
    let request = &parsed["tool_call_requests"][0];
    assert_eq!(
        (&request["id"], &request["source"], &request["toolName"]),
        (&json!("n"), &json!("native"), &json!("write"))
    );
    let parsed = parse("Only words.", json!({}));
    assert_eq!(
        (
            &parsed["has_calls"],
            &parsed["tool_call_requests"],
            &parsed["feedback"]
        ),
        (&json!(false), &json!([]), &json!(""))
    );
}

#[test]
fn what_cannot_run_is_listed_with_its_problems() {
    let quoted = json!({"messages": [{"role": "user", "content": WRITE}]});
    for (text, more, problem) in [
        (READ.replace("read", "rode"), json!({}), "rode"),
        (
            "<ACTION><read></read></ACTION>".to_owned(),
            json!({}),
            "path",
        ),
        (WRITE.to_owned(), json!({"messages": null}), "read-only"),
        (WRITE.to_owned(), quoted, "outside"),
    ] {
        let parsed = parse(&text, more);
        let request = &parsed["tool_call_requests"][0];
        let problems = request["problems"].as_array().unwrap();
        assert!(problems[0].as_str().unwrap().contains(problem), "{request}");
        assert_eq!(request["observation"], parsed["feedback"]);
    }
    let parsed = parse(WRITE, json!({}));
    assert_eq!(parsed["tool_call_requests"][0]["problems"], json!([]));
    let parsed = parse(READ, json!({"messages": null}));
    assert_eq!(parsed["tool_call_requests"][0]["problems"], json!([]));
}

#[test]
fn an_example_of_a_call_that_the_model_wrote_is_no_text_from_outside() {
    const PYTHON: &str = "[write(path=\"a\")]";
    let refused = parse(PYTHON, json!({}))["feedback"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(refused.contains("<path>a</path>"), "{refused}");
    let shown = |observed: &str| {
        json!({"messages": [
            {"role": "user", "content": "Write it."},
            {"role": "assistant", "content": PYTHON},
            {"role": "user", "content": observed},
        ]})
    };
    for (observed, is_refused) in [
        (refused.clone(), false),
        (format!("{refused}\nGo on."), false),
        // A result that holds the call, even in the words of an example.
        (format!("{refused}\n{WRITE}"), true),
        (format!("{refused}\n{refused}"), true),
        (format!("Write it like this:\n{WRITE}"), true),
    ] {
        let parsed = parse(WRITE, shown(&observed));
        let problems = &parsed["tool_call_requests"][0]["problems"];
        assert_eq!(problems != &json!([]), is_refused, "{observed}");
    }
}

#[test]
fn what_is_no_call_is_reported_without_an_invented_one() {
    let broken = "<ACTION><read><path>a</read></ACTION>";
    let native = json!([{"id": "n", "function": {"name": "write", "arguments": "{}"}}]);
    let twice = json!({"response": {"text": READ, "tool_calls": native}});
    let later = "Observation: 1 call of later blocks";
    let malformed = "Observation: Error - Malformed XML";
    for (text, more, has_calls, tools, said) in [
        (
            broken.to_owned(),
            json!({}),
            false,
            json!([null]),
            malformed,
        ),
        (
            format!("{READ}\n{broken}"),
            json!({}),
            true,
            json!(["read", null]),
            malformed,
        ),
        (READ.to_owned(), twice, true, json!(["read"]), later),
        (
            format!("{READ} Then {WRITE}"),
            json!({}),
            true,
            json!(["read"]),
            later,
        ),
    ] {
        let parsed = parse(&text, more);
        assert_eq!(parsed["has_calls"], has_calls, "{text}");
        let requests = parsed["tool_call_requests"].as_array().unwrap();
        let named = requests.iter().map(|request| request["toolName"].clone());
        assert_eq!(Value::from_iter(named), tools, "{text}");
        assert!(parsed["feedback"].as_str().unwrap().starts_with(said));
        let last = requests.last().unwrap();
        let is_broken = last["toolName"].is_null();
        assert_eq!(last["observation"].is_string(), is_broken, "{text}");
        assert_eq!(last["leftOut"].is_string(), said == later, "{text}");
    }
}

#[test]
fn what_was_left_out_stands_behind_the_last_result() {
    let requests =
        json!({"requests": [{"toolName": "f"}, {"toolName": "g", "leftOut": "h was left out."}]});
    let outcome = |said: &str| ToolOutcome {
        status: "succeeded",
        output: json!(1),
        failure: None,
        observation: said.to_owned(),
    };
    let settled = Settled::Calls(vec![outcome("F."), outcome("G.")]);
    let (_, outputs) = effect("core:ExecuteTool", json!({}), requests, settled);
    let outputs = outputs.unwrap();
    assert_eq!(outputs[1], "succeeded");
    assert_eq!(outputs[4], "F.\nG.\nh was left out.");
}

#[test]
fn t26_a_step_that_may_fail_says_so_to_the_node_that_carries_it_out() {
    let text = "<|[REQUEST_TOOL]|>\ncommand1:「始」read「末」\npath1:「始」a「末」\n\
                on_error_1:「始」continue「末」\ncommand2:「始」read「末」\npath2:「始」b「末」\n<|[END_TOOL]|>";
    let parsed = parse(text, json!({}));
    let requests = parsed["tool_call_requests"].as_array().unwrap().iter();
    let continues: Vec<&Value> = requests
        .map(|request| &request["continueOnError"])
        .collect();
    assert_eq!(continues, [&json!(true), &json!(false)], "{parsed}");
}

#[test]
fn execute_tool_calls_what_was_asked_for_and_reports_the_rest() {
    let request = |id: &str, tool: &str| json!({"id": id, "toolName": tool, "arguments": {"x": 1}});
    let refused =
        json!({"id": "c", "toolName": "bad", "problems": ["no"], "observation": "Not run."});
    let outcome = |status, output: Value, failure| ToolOutcome {
        status,
        output,
        failure,
        observation: format!("It {status}."),
    };
    let settled = Settled::Calls(vec![outcome("succeeded", json!(5), None)]);
    let requests = json!({"requests": [request("a", "f"), refused, request("b", "g")]});
    let (asked, outputs) = effect("core:ExecuteTool", json!({}), requests, settled);
    let called = |tool: &str| ToolRequest {
        tool_id: tool.to_owned(),
        arguments: json!({"x": 1}).as_object().cloned().unwrap(),
        parallel_safe: false,
        continue_on_error: false,
    };
    assert_eq!(asked, Effect::CallTools(vec![called("f")]));
    let outputs = outputs.unwrap();
    assert_eq!((&outputs[0], &outputs[1]), (&json!(5), &json!("rejected")));
    assert_eq!(outputs[2]["code"], "not_run");
    let statuses: Vec<&Value> = outputs[3]
        .as_array()
        .unwrap()
        .iter()
        .map(|result| &result["status"])
        .collect();
    assert_eq!(statuses, ["succeeded", "rejected", "skipped"]);
    assert_eq!(
        outputs[4],
        "It succeeded.\nNot run.\nObservation: Tool g was skipped because bad failed before it."
    );
}

#[test]
fn results_of_native_calls_are_messages_of_the_chat_and_the_rest_is_the_observation() {
    let request = |id: &str, source: &str| json!({"id": id, "toolName": "f", "source": source});
    let refused = json!({"id": "c", "toolName": "f", "source": "native", "problems": ["no"],
                         "observation": "Not run."});
    let outcome = |observation: &str| ToolOutcome {
        status: "succeeded",
        output: json!(null),
        failure: None,
        observation: observation.to_owned(),
    };
    let answer =
        json!({"role": "assistant", "content": "", "tool_calls": [{"id": "a"}, {"id": "c"}]});
    let result =
        |id: &str, text: &str| json!({"role": "tool", "content": text, "tool_call_id": id});
    let mut failed = result("c", "Not run.");
    failed["is_error"] = json!(true);
    let results = [result("a", "One."), failed];
    for (chat, messages, observation) in [
        (json!(null), json!(results), "One.\nTwo.\nNot run."),
        (
            json!([answer]),
            json!([answer, results[0], results[1]]),
            "Two.",
        ),
    ] {
        let inputs = json!({"messages": chat,
            "requests": [request("a", "native"), request("b", "text"), refused]});
        let settled = Settled::Calls(vec![outcome("One."), outcome("Two.")]);
        let (_, outputs) = effect("core:ExecuteTool", json!({}), inputs, settled);
        let outputs = outputs.unwrap();
        assert_eq!((&outputs[6], &outputs[4]), (&messages, &json!(observation)));
    }
    let chat = json!({"requests": [], "messages": [answer]});
    let unchanged = run("core:ExecuteTool", json!({}), chat).unwrap();
    assert_eq!(unchanged["messages"], json!([answer]));
}

#[test]
fn no_requests_make_no_call() {
    for requests in [
        json!([]),
        json!([{"toolName": "f", "needsConfirmation": true}]),
        json!([1]),
    ] {
        let outputs = run("core:ExecuteTool", json!({}), json!({"requests": requests}));
        assert_eq!(outputs.unwrap()["result"], json!(null));
    }
    for (inputs, code) in [
        (json!({}), "missing_input"),
        (json!({"tool_id": "f", "requests": []}), "missing_input"),
        (
            json!({"requests": vec![json!({"toolName": "f"}); 65]}),
            "too_many_requests",
        ),
    ] {
        assert_eq!(
            run("core:ExecuteTool", json!({}), inputs),
            Err(code.to_owned())
        );
    }
}

#[test]
fn w30_tools_are_declared_once_and_again_when_they_change() {
    let config = json!({"dialect": "native", "descriptionTemplate": "* {toolName} {toolName}: {toolDescription} {x}"});
    let prompt = |history: Value, observation: &str, tools: Value| {
        let inputs = json!({"history": history, "user_query": "Hi", "observation": observation, "tools": tools});
        run("core:DecisionPrompt", config.clone(), inputs).unwrap()["messages"].clone()
    };
    let first = prompt(json!([]), "", tools());
    assert_eq!(
        first[0]["content"],
        "Hi\n\n可用工具:\n* read read: Reads. {x}\n* write write: Writes {toolName}. {x}"
    );
    let mut history = first.as_array().cloned().unwrap();
    history.push(json!({"role": "assistant", "content": "Yes?"}));
    let second = prompt(json!(history), "Seen.", tools());
    let contents: Vec<&Value> = second
        .as_array()
        .unwrap()
        .iter()
        .map(|message| &message["content"])
        .collect();
    assert_eq!(contents[2..], ["Hi", "Seen."]);
    let fewer = prompt(json!(history), "", json!([tools()[0]]));
    assert_eq!(
        fewer[2]["content"],
        "Hi\n\n可用工具:\n* read read: Reads. {x}"
    );
    let after_compaction = prompt(json!(history[1..]), "", tools());
    assert_eq!(after_compaction[1]["content"], first[0]["content"]);
    assert_eq!(prompt(json!([]), "", json!([]))[0]["content"], "Hi");
}

#[test]
fn l9_a_template_is_for_the_tools_that_it_is_given_with() {
    let mut by_name = tools();
    by_name[1]["writtenName"] = json!("Writer");
    for (only, tools, expected) in [
        (json!(["write"]), tools(), "- read: Reads.\n* write"),
        (json!(["Writer"]), by_name, "- read: Reads.\n* write"),
        (
            json!([]),
            tools(),
            "- read: Reads.\n- write: Writes {toolName}.",
        ),
        (json!(null), tools(), "* read\n* write"),
    ] {
        let config = json!({"dialect": "native", "descriptionTemplate": "* {toolName}", "templateToolIds": only});
        let inputs = json!({"user_query": "Hi", "tools": tools});
        let prompted = run("core:DecisionPrompt", config, inputs).unwrap();
        let content = prompted["messages"][0]["content"].as_str().unwrap();
        assert_eq!(content, format!("Hi\n\n可用工具:\n{expected}"), "{only}");
    }
}

#[test]
fn available_tools_lists_what_the_registry_describes() {
    let described = Settled::Tools(tools().as_array().cloned().unwrap());
    let config = json!({"toolIds": ["read", "write", "read"]});
    let (asked, outputs) = effect("core:AvailableTools", config, json!({}), described);
    let ids = vec!["read".to_owned(), "write".to_owned()];
    assert_eq!(asked, Effect::DescribeTools(ids));
    let outputs = outputs.unwrap();
    assert_eq!(outputs[0], tools());
    assert!(outputs[1].as_str().unwrap().contains("<read>"));
    let none = run("core:AvailableTools", json!({}), json!({}));
    assert_eq!(none, Ok(json!({"tools": [], "manifest": ""})));
    let wrong = run("core:AvailableTools", json!({"toolIds": "read"}), json!({}));
    assert_eq!(wrong, Err("type_mismatch".to_owned()));
}

#[test]
fn w31_calls_beyond_a_budget_are_answered_as_not_executed() {
    let request = |id: &str| json!({"id": id, "toolName": "read", "arguments": {}, "problems": []});
    let count = |budgets: Value, more: Value| {
        let mut inputs = json!({"requests": [request("a"), request("b")], "calls": 3,
            "usage": {"total_tokens": 5}, "used": {"total_tokens": 2}});
        inputs
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        run(
            "core:LlmCallCount",
            json!({"maxToolCalls": budgets}),
            inputs,
        )
        .unwrap()
    };
    for budgets in [json!({"callsPerResponse": 1}), json!(4)] {
        let counted = count(budgets, json!({}));
        assert_eq!(
            (&counted["calls"], &counted["over"]),
            (&json!(4), &json!(false))
        );
        assert_eq!(counted["usage"], json!({"total_tokens": 7}));
        assert_eq!(counted["requests"][0]["problems"], json!([]));
        let refused = counted["requests"][1]["observation"].as_str().unwrap();
        assert!(
            refused.starts_with("Observation: Tool read was not executed"),
            "{refused}"
        );
    }
    let last = count(json!(9), json!({"stop_reason": "calls"}));
    assert_eq!(
        (&last["over"], &last["requests"], &last["stop_reason"]),
        (&json!(true), &json!([]), &json!("calls"))
    );
    let answered = count(json!(9), json!({"requests": []}));
    assert_eq!(
        (&answered["over"], &answered["stop_reason"]),
        (&json!(true), &json!("answered"))
    );
}

#[test]
fn l6_a_round_beyond_the_budgets_has_no_tools_and_says_why() {
    let round = |index: u32, calls: u32| {
        let inputs =
            json!({"tools": tools(), "index": index, "calls": calls, "observation": "It is so."});
        run(
            "core:LlmRound",
            json!({"maxToolCalls": {"iterations": 2, "calls": 5}}),
            inputs,
        )
        .unwrap()
    };
    let within = round(1, 4);
    assert_eq!(
        (&within["tools"], &within["stop_reason"]),
        (&tools(), &json!(""))
    );
    for (index, calls, reason, remark) in [
        (2, 0, "iterations", "All 2 rounds"),
        (0, 5, "calls", "All 5 calls"),
    ] {
        let beyond = round(index, calls);
        assert_eq!(
            (&beyond["tools"], &beyond["stop_reason"]),
            (&json!([]), &json!(reason))
        );
        let observation = beyond["observation"].as_str().unwrap();
        assert!(
            observation.starts_with(&format!("It is so.\n\n{remark} are used.")),
            "{observation}"
        );
    }
}
