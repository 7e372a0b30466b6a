//! Hooks of plugins (rules R201 to R206), over the wire, with handlers in the sandbox and at a gRPC server.

mod approvals;
mod backend;
mod kills;
mod masking;
mod peers;

use std::time::Duration;

use anyhow::{Context, ensure};
use contracts::tavern::common::v1::{
    CallResult, CallStatus, HookAction, HookApplied, RunEvent, run_event::Kind,
};
use contracts::tavern::registry::v1::{
    CallToolRequest, ExplainAvailabilityRequest, GetCallRequest, GetRawResultRequest,
    ListHooksRequest, PluginHook, ReadOutputRequest, SetPluginStateRequest,
    call_tool_response::Record,
};
use serde_json::{Value, json};
use testkit::{Stack, eventually};
use tonic::Status;

use super::{call, code_of, files, install, package, plan};
use backend::Backend;

/// Answers with its arguments.
const ECHO: &str = "import sys\nprint(sys.stdin.read())\n";

/// Returns a plugin with hooks, each with the permission for its point, and scripts.
fn plugin(
    name: &str,
    hooks: &[Value],
    scripts: &[(&str, &str)],
) -> anyhow::Result<plugin_package::PluginFiles> {
    let mut points: Vec<String> = hooks
        .iter()
        .map(|hook| format!("hook:server:{}", hook["point"].as_str().unwrap_or_default()))
        .collect();
    points.sort();
    points.dedup();
    let points: Vec<Value> = points
        .into_iter()
        .map(|point| json!({"point": point}))
        .collect();
    let manifest = json!({
        "name": name,
        "version": "1.0.0",
        "hooks": hooks,
        "permissions": {"hooks": points},
    });
    let mut files = vec![super::file("plugin.yaml", manifest.to_string())];
    files.extend(
        scripts
            .iter()
            .map(|(path, script)| super::file(*path, *script)),
    );
    package(files)
}

fn grpc(id: &str, point: &str, more: Value) -> Value {
    let mut hook =
        json!({"id": id, "point": point, "handler": {"type": "grpc", "backend": "hooks"}});
    if let (Some(hook), Value::Object(more)) = (hook.as_object_mut(), more) {
        hook.extend(more);
    }
    hook
}

fn replace(path: &str, value: Value) -> Value {
    json!({"action": "replace", "patch": [{"op": "add", "path": path, "value": value}]})
}

/// Calls a tool with an effect id, and returns its events and its result.
async fn follow(
    stack: &Stack,
    tool: &str,
    effect: &str,
    arguments: Value,
) -> anyhow::Result<(Vec<RunEvent>, CallResult)> {
    let request = CallToolRequest {
        tool_id: tool.to_owned(),
        arguments_json: arguments.to_string(),
        effect_id: effect.to_owned(),
        ..CallToolRequest::default()
    };
    let mut stream = stack.calls().call_tool(request).await?.into_inner();
    let mut events = Vec::new();
    while let Some(response) = stream.message().await? {
        match response.record.context("a record")? {
            Record::Event(event) => events.push(event),
            Record::Result(result) => return Ok((events, result)),
        }
    }
    anyhow::bail!("the call of {tool} has no result")
}

fn applied(events: &[RunEvent]) -> Vec<&HookApplied> {
    let applied = events.iter().filter_map(|event| match &event.kind {
        Some(Kind::HookApplied(applied)) => Some(applied),
        _ => None,
    });
    applied.collect()
}

fn output(result: &CallResult) -> anyhow::Result<Value> {
    ensure!(result.status() == CallStatus::Succeeded, "{result:?}");
    Ok(serde_json::from_str(&result.output_json)?)
}

async fn echo(stack: &Stack) -> anyhow::Result<()> {
    install(
        stack,
        &package(files("echo", "version: 1.0.0\n", &[("say", ECHO)]))?,
    )
    .await
}

async fn hooks_of(stack: &Stack) -> anyhow::Result<Vec<PluginHook>> {
    let listed = stack.plugins().list_hooks(ListHooksRequest {}).await?;
    Ok(listed.into_inner().hooks)
}

#[tokio::test(flavor = "multi_thread")]
async fn r203_hooks_before_a_call_change_its_arguments_in_order_and_replays_do_not_ask_again()
-> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    echo(&stack).await?;
    let unit = "import json, sys\nact = json.load(sys.stdin)\n\
        value = len(act['call']['arguments'])\n\
        print(json.dumps({'action': 'replace', 'reason': 'the unit of the user', 'patch': [\n\
        {'op': 'add', 'path': '/call/arguments/unit', 'value': value}]}))\n";
    let backend = Backend::start(&stack, "hooks", |_, act| {
        Ok(replace(
            "/call/arguments/seen",
            act["call"]["arguments"].clone(),
        ))
    });
    let backend = backend.await?;
    let script = json!({
        "id": "unit",
        "point": "tool:before-call",
        "when": "call.tool_id == 'echo:say' && !has(call.arguments.unit)",
        "handler": {"type": "script", "command": "python3 unit.py"},
        "timeout_ms": 5_000,
    });
    let hooks = [
        grpc("later", "tool:before-call", json!({"order": 10})),
        script,
    ];
    let package = plugin("changes", &hooks, &[("unit.py", unit)])?;
    let planned = plan(&stack, &package).await?;
    let planned: Value = serde_json::from_str(&planned.plan_json)?;
    let chain = json!(["changes/unit", "changes/later"]);
    ensure!(
        planned["hooks"][0]["chain"] == chain,
        "{}",
        planned["hooks"]
    );
    install(&stack, &package).await?;
    let listed: Vec<String> = hooks_of(&stack)
        .await?
        .into_iter()
        .map(|hook| hook.hook)
        .collect();
    ensure!(listed == ["changes/unit", "changes/later"], "{listed:?}");

    let (events, result) = follow(&stack, "echo:say", "one", json!({"a": 1})).await?;
    let whole = json!({"a": 1, "unit": 1, "seen": {"a": 1, "unit": 1}});
    ensure!(output(&result)? == whole, "{result:?}");
    let shown = applied(&events);
    ensure!(
        shown.len() == 2 && shown[0].hook == "changes/unit",
        "{shown:?}"
    );
    ensure!(
        shown[0].action() == HookAction::Replace && shown[0].pointers == ["/call/arguments/unit"]
    );
    ensure!(shown[0].after == shown[1].before && shown[0].before != shown[0].after);
    ensure!(shown[0].reason == "the unit of the user" && shown[0].effect_id == "one");
    // The ledger has the arguments as they left, and a repeat is the same call.
    let request = GetCallRequest {
        effect_id: "one".to_owned(),
    };
    let recorded = stack.calls().get_call(request).await?.into_inner();
    ensure!(format!("{recorded:?}").contains("seen"), "{recorded:?}");
    let (_, again) = follow(&stack, "echo:say", "one", json!({"a": 1})).await?;
    ensure!(again.replayed && output(&again)? == whole, "{again:?}");
    ensure!(backend.asked("tool:before-call").len() == 1);
    // A condition that does not hold, a tenant's switch, and the removal of the plugin.
    let (_, result) = follow(&stack, "echo:say", "", json!({"unit": 5})).await?;
    ensure!(output(&result)?["unit"] == 5, "{result:?}");
    for enabled in [false, true] {
        let request = SetPluginStateRequest {
            name: "changes".to_owned(),
            enabled,
        };
        stack.plugins().set_plugin_state(request).await?;
        let (events, _) = follow(&stack, "echo:say", "", json!({"a": 1})).await?;
        ensure!(applied(&events).is_empty() != enabled, "{events:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn r203_hooks_before_a_call_refuse_it_and_answer_in_its_place() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    echo(&stack).await?;
    let backend = Backend::start(&stack, "hooks", |_, _| Ok(json!({"action": "continue"})));
    let backend = backend.await?;
    install(&stack, &rules()?).await?;
    let strict = |decision: Value| strict(&backend, decision);
    strict(json!({"action": "deny", "code": "quiet_hours", "reason": "Not between 22 and 6."}));
    let (events, refused) = follow(&stack, "echo:say", "no", json!({})).await?;
    ensure!(refused.status() == CallStatus::Rejected && code_of(&refused) == "quiet_hours");
    let message = refused.error.clone().unwrap_or_default().message;
    ensure!(
        message.contains("rules/strict") && message.contains("Not between"),
        "{message}"
    );
    ensure!(
        applied(&events)[0].action() == HookAction::Deny,
        "{events:?}"
    );
    strict(json!({"action": "deny"}));
    let (_, refused) = follow(&stack, "echo:say", "", json!({})).await?;
    let message = refused.error.clone().unwrap_or_default().message;
    ensure!(
        message.contains("the hook rules/strict refuses it"),
        "{message}"
    );
    // An answer in the tool's place has no entry in the ledger, so its effect id is new for the next call.
    strict(json!({"action": "answer", "output": {"from": "the store"}}));
    let (_, answered) = follow(&stack, "echo:say", "no", json!({})).await?;
    ensure!(
        output(&answered)? == json!({"from": "the store"})
            && answered.answered_by == "rules/strict"
    );
    let request = GetCallRequest {
        effect_id: "no".to_owned(),
    };
    ensure!(
        stack.calls().get_call(request).await.is_err(),
        "nothing was dispatched"
    );
    Ok(())
}

/// Returns a plugin with a hook whose failures refuse a call, and one whose failures are passed over.
fn rules() -> anyhow::Result<plugin_package::PluginFiles> {
    let when = json!({"when": "call.tool_id == 'echo:say'"});
    let lenient = json!({"order": 1, "on_failure": "skip"});
    let point = "tool:before-call";
    let hooks = [grpc("strict", point, when), grpc("lenient", point, lenient)];
    plugin("rules", &hooks, &[])
}

/// Lets the strict hook decide so from now on.
fn strict(backend: &Backend, decision: Value) {
    backend.answers(move |hook, _| {
        Ok(match hook {
            "rules/strict" => decision.clone(),
            _ => json!({"action": "continue"}),
        })
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn r205_a_decision_that_reaches_beyond_its_part_changes_nothing() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    echo(&stack).await?;
    let backend = Backend::start(&stack, "hooks", |_, _| Ok(json!({"action": "continue"})));
    let backend = backend.await?;
    install(&stack, &rules()?).await?;
    let strict = |decision: Value| strict(&backend, decision);
    for decision in [
        replace("/call/tool_id", json!("other")),
        replace("/call/effect_id", json!("other")),
        replace("/run/id", json!("other")),
        json!({"action": "replace", "patch": [{"op": "remove", "path": "/call/arguments/none"}]}),
        json!({"action": "replace", "patch": [{"op": "test", "path": "/call/arguments/a", "value": 2}]}),
        json!({"action": "replace", "patch": vec![json!({"op": "remove", "path": "/call/arguments/a"}); 1_000]}),
        replace("/call/arguments", json!([1])),
        json!("yes"),
    ] {
        let wrong = decision.clone();
        strict(decision);
        let (_, refused) = follow(&stack, "echo:say", "", json!({"a": 1})).await?;
        ensure!(
            code_of(&refused) == "hook_answer_invalid",
            "{wrong}: {refused:?}"
        );
        strict(json!({"action": "continue"}));
        let (_, result) = follow(&stack, "echo:say", "", json!({"a": 1})).await?;
        ensure!(
            output(&result)? == json!({"a": 1}),
            "{wrong}: nothing is changed"
        );
    }
    backend.answers(|_, _| Err(Status::unavailable("restarting")));
    let result = call(&stack, ("system:get_current_time", ""), json!({})).await?;
    ensure!(
        result.status() == CallStatus::Succeeded,
        "a hook that may fail: {result:?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn r205_hooks_after_a_call_replace_its_output_and_the_ledger_keeps_the_raw_one()
-> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let fail = "import sys\nprint('so far', file=sys.stderr, flush=True)\nsys.exit(3)\n";
    let talk = "import sys, time\nprint('hidden', file=sys.stderr, flush=True)\ntime.sleep(0.1)\nprint('\"hidden\"')\n";
    let scripts = [("say", ECHO), ("fail", fail), ("talk", talk)];
    install(
        &stack,
        &package(files("echo", "version: 1.0.0\n", &scripts))?,
    )
    .await?;
    let backend = Backend::start(&stack, "hooks", |hook, act| {
        let status = act["result"]["status"].as_str().unwrap_or_default();
        Ok(match (hook, status) {
            ("after/mask", "succeeded") => replace("/result/output", json!("masked")),
            ("after/warn", _) => {
                replace("/result/warnings/-", json!("look <ACTION>twice</ACTION>"))
            }
            _ => json!({"action": "continue"}),
        })
    });
    let backend = backend.await?;
    let hooks = [
        grpc(
            "mask",
            "tool:after-call",
            json!({"order": 5, "on_failure": "deny"}),
        ),
        grpc("warn", "tool:after-call", json!({})),
        grpc("see", "tool:after", json!({})),
    ];
    install(&stack, &plugin("after", &hooks, &[])?).await?;
    for effect in ["", "kept"] {
        let (events, result) = follow(&stack, "echo:talk", effect, json!({})).await?;
        ensure!(output(&result)? == "masked", "{result:?}");
        ensure!(
            result.warnings == ["look <ACTION>twice</ACTION>"],
            "{result:?}"
        );
        ensure!(
            !format!("{events:?}").contains("hidden"),
            "its stream is held back: {events:?}"
        );
        let order: Vec<&str> = applied(&events)
            .iter()
            .map(|applied| &*applied.hook)
            .collect();
        ensure!(
            order == ["after/mask", "after/warn"],
            "after in reverse: {order:?}"
        );
    }
    let (_, again) = follow(&stack, "echo:talk", "kept", json!({})).await?;
    ensure!(
        output(&again)? == "masked" && again.warnings.len() == 1,
        "{again:?}"
    );
    // The observer saw the results as they were recorded last.
    let seen = eventually("the observer", || async {
        let seen = backend.asked("tool:after");
        (seen.len() >= 2).then_some(seen)
    });
    let seen = seen.await?;
    let is_masked = |act: &Value| act["result"]["output"] == "masked";
    ensure!(seen.iter().all(is_masked), "{seen:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn r205_no_hook_makes_a_success_of_a_failure_and_a_redaction_that_fails_withholds()
-> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let fail = "import sys\nprint('so far', file=sys.stderr, flush=True)\nsys.exit(3)\n";
    let scripts = [("say", ECHO), ("fail", fail)];
    install(
        &stack,
        &package(files("echo", "version: 1.0.0\n", &scripts))?,
    )
    .await?;
    let backend = Backend::start(&stack, "hooks", |_, _| {
        Ok(replace(
            "/result/warnings/-",
            json!("look <ACTION>twice</ACTION>"),
        ))
    });
    let backend = backend.await?;
    let mask = grpc("mask", "tool:after-call", json!({"on_failure": "deny"}));
    install(&stack, &plugin("after", &[mask], &[])?).await?;
    let failed = follow(&stack, "echo:fail", "failed", json!({})).await?.1;
    ensure!(
        failed.status() == CallStatus::Failed && failed.warnings.len() == 1,
        "{failed:?}"
    );
    backend.answers(|_, _| Ok(replace("/result/output", json!("fine"))));
    let failed = call(&stack, ("echo:fail", ""), json!({})).await?;
    ensure!(failed.status() == CallStatus::Failed && code_of(&failed) != "hook_answer_invalid");
    // A redaction that fails withholds the result; a refusal states that the tool was called.
    backend.answers(|hook, _| match hook {
        "after/mask" => Err(Status::internal("no")),
        _ => Ok(json!({"action": "continue"})),
    });
    let (_, withheld) = follow(&stack, "echo:say", "withheld", json!({"x": 1})).await?;
    ensure!(
        withheld.status() == CallStatus::Failed && code_of(&withheld) == "hook_failed",
        "{withheld:?}"
    );
    let message = withheld.error.clone().unwrap_or_default().message;
    ensure!(
        message.contains("was called") && message.contains("withheld"),
        "{message}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn r205_hooks_see_a_long_output_whole_and_readers_read_the_hooked_one() -> anyhow::Result<()>
{
    const BYTES: usize = 1_000_000;
    let stack = Stack::all_in_one().await?;
    let long = format!("print('\"' + 'x' * {BYTES} + '\"')\n");
    install(
        &stack,
        &package(files("echo", "version: 1.0.0\n", &[("long", &long)]))?,
    )
    .await?;
    let backend = Backend::start(&stack, "hooks", |_, act| {
        let seen = act["result"]["output"].as_str().map_or(0, str::len);
        Ok(replace(
            "/result/warnings/-",
            json!(format!("{seen} bytes")),
        ))
    });
    let backend = backend.await?;
    let after = grpc("after", "tool:after-call", json!({}));
    install(&stack, &plugin("long", &[after], &[])?).await?;
    for (effect, whole) in [("as it is", BYTES), ("changed", BYTES + 1)] {
        if whole > BYTES {
            let text = "y".repeat(whole);
            backend.answers(move |_, _| Ok(replace("/result/output", json!(text))));
        }
        let (_, result) = follow(&stack, "echo:long", effect, json!({})).await?;
        let kept = result.long_output.clone().unwrap_or_default();
        ensure!(kept.total_bytes == whole as u64 + 2, "{effect}: {kept:?}");
        let letter = if whole > BYTES { "y" } else { "x" };
        for offset in [1, whole as u64 / 2, whole as u64] {
            let request = ReadOutputRequest {
                effect_id: effect.to_owned(),
                offset,
                limit: 4,
            };
            let part = stack.calls().read_output(request).await?.into_inner();
            ensure!(
                part.text.starts_with(letter),
                "{effect} at {offset}: {part:?}"
            );
        }
        let effect_id = effect.to_owned();
        let mut calls = stack.calls();
        let raw = calls.get_raw_result(GetRawResultRequest { effect_id });
        let raw = raw.await?.into_inner().result;
        let raw = raw.context("the raw result")?;
        ensure!(raw.output_json.len() == BYTES + 2, "{effect}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn r204_failures_in_a_row_suspend_a_hook_and_a_slow_one_is_ended() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    echo(&stack).await?;
    let slow = "import time, os\nif os.fork() == 0:\n    time.sleep(60)\ntime.sleep(60)\n";
    let crash = "raise SystemExit(7)\n";
    let hook = |id: &str| {
        json!({
            "id": id,
            "point": "tool:before-call",
            "when": format!("call.tool_id == 'echo:say' && call.arguments.hook == '{id}'"),
            "handler": {"type": "script", "command": format!("python3 {id}.py")},
            "on_failure": if id == "crash" { "skip" } else { "deny" },
        })
    };
    let hooks = [hook("slow"), hook("crash")];
    install(
        &stack,
        &plugin("bad", &hooks, &[("slow.py", slow), ("crash.py", crash)])?,
    )
    .await?;
    let begun = std::time::Instant::now();
    let refused = call(&stack, ("echo:say", ""), json!({"hook": "slow"})).await?;
    ensure!(
        code_of(&refused) == "hook_timeout" || code_of(&refused) == "hook_failed",
        "{refused:?}"
    );
    ensure!(
        begun.elapsed() < Duration::from_secs(30),
        "it does not sleep on"
    );
    for number in 0..6 {
        let (events, passed) = follow(&stack, "echo:say", "", json!({"hook": "crash"})).await?;
        ensure!(
            output(&passed)?["hook"] == "crash",
            "it is passed over: {passed:?}"
        );
        let code = &applied(&events)[0].code;
        ensure!(
            code == if number < 5 {
                "hook_failed"
            } else {
                "hook_suspended"
            },
            "{number}: {code}"
        );
    }
    let listed = hooks_of(&stack).await?;
    let crash = listed
        .iter()
        .find(|hook| hook.hook == "bad/crash")
        .context("it is listed")?;
    ensure!(
        crash.suspended && crash.failures == 5 && !crash.last_failure.is_empty(),
        "{crash:?}"
    );
    // A hook whose failures refuse calls makes its tools unavailable once it is suspended.
    for _ in 0..4 {
        call(&stack, ("echo:say", ""), json!({"hook": "slow"})).await?;
    }
    let request = ExplainAvailabilityRequest {
        tool_ids: vec!["echo:say".to_owned()],
        ..ExplainAvailabilityRequest::default()
    };
    let explained = stack.registry().explain_availability(request).await?;
    let explained = format!("{:?}", explained.into_inner());
    ensure!(explained.contains("bad/slow") && explained.contains("tavern plugins disable bad"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn r104_a_plan_names_hooks_that_cannot_work() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let script = json!({
        "id": "lost",
        "point": "tool:before-call",
        "handler": {"type": "script", "command": "python3 lost.py"},
    });
    let hooks = [grpc("far", "tool:after", json!({})), script];
    let refused = plan(&stack, &plugin("lost", &hooks, &[])?)
        .await
        .unwrap_err()
        .to_string();
    for words in ["no backend 'hooks' is registered", "lost.py"] {
        ensure!(refused.contains(words), "{refused}");
    }
    Ok(())
}
