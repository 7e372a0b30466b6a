//! Node types of plugins (rule R116): in each position a node gives the outputs of a script node with the same logic, runs
//! keep the types with which they began, and a workflow without its plugin is stored and does not run.
//!
//! `TAVERN_TEST_WAITING` sets the runs that use a plugin while it is removed; `make bars` sets 100.

mod positions;

use anyhow::{Context, ensure};
use base64::Engine as _;
use contracts::tavern::common::v1::{ErrorReason, RunState};
use contracts::tavern::registry::v1::{
    PutToolRequest, SetPluginStateRequest, UninstallPluginRequest, UpdatePluginOptionsRequest,
};
use contracts::tavern::run::v1::SignalRunRequest;
use contracts::tavern::workflow::v1::start_run_request::Target;
use contracts::tavern::workflow::v1::{
    ForkRunRequest, GetWorkflowRequest, ListNodeTypesRequest, ListWorkflowsRequest,
    PutWorkflowRequest, SingleNode,
};
use grpc_kit::reason;
use plugin_package::PluginFiles;
use serde_json::{Value, json};
use testkit::{Followed, Stack, collect, size};
use tonic::{Code, Status};

use super::samples::build_dependencies;
use super::{call, code_of, file, install, package};
use crate::workflows::{edge, start};
use positions::{Worker, positions, workflow};

/// Runs that wait while their plugin is removed, in `make test`.
const WAITING: usize = 8;

/// Answers with its text in large letters, and writes it in small ones meanwhile.
const SCRIPT: &str = "import json, os, sys\n\
    given = json.load(sys.stdin)\n\
    print(given['text'].lower(), flush=True)\n\
    answer = {'upper': given['text'].upper() + given.get('mark', ''), 'size': len(given['text'])}\n\
    os.write(3, json.dumps(answer).encode())\n";

/// Returns a plugin with a node type, whose script is `script`.
fn shout(version: u32, manifest: &str, script: &str) -> anyhow::Result<PluginFiles> {
    let node = json!({
        "type": "Upper",
        "displayName": "Large letters",
        "description": "Writes a text in large letters.",
        "category": "text",
        "inputs": {"text": {"dataFlowType": "STRING", "required": true}},
        "outputs": {
            "upper": {"dataFlowType": "STRING"},
            "size": {"dataFlowType": "INTEGER"},
            "lines": {"dataFlowType": "STRING", "isStream": true},
        },
        "configSchema": {"mark": {"dataFlowType": "STRING", "config": {"default": "!"}}},
        "handler": {"script": "python3 upper.py"},
        "effects": {"readOnly": true, "parallelSafe": true},
    });
    package(vec![
        file(
            "plugin.yaml",
            format!("name: shout\nversion: 1.0.{version}\nnodes: {{entry: nodes}}\n{manifest}"),
        ),
        file("nodes/upper.node.json", node.to_string()),
        file("upper.py", script),
    ])
}

async fn put(stack: &Stack, id: &str, definition: &Value) -> Result<(), Status> {
    let request = PutWorkflowRequest {
        workflow_id: id.to_owned(),
        definition_json: definition.to_string(),
        ..PutWorkflowRequest::default()
    };
    stack.workflow().put_workflow(request).await.map(drop)
}

async fn finish(stack: &Stack, target: Target, inputs: Value) -> anyhow::Result<Followed> {
    let run_id = start(stack, target, &inputs).await?;
    collect(&stack.runs(), &run_id, 0).await
}

fn outputs(ended: &Followed) -> anyhow::Result<Value> {
    let outcome = ended.run.outcome.clone().unwrap_or_default();
    ensure!(ended.run.state() == RunState::Succeeded, "{outcome:?}");
    Ok(serde_json::from_str(&outcome.result_json)?)
}

fn definition(definition: &Value) -> Target {
    Target::DefinitionJson(definition.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn r116_a_node_of_a_plugin_gives_the_outputs_of_a_script_node_in_each_position()
-> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    install(&stack, &shout(1, "", SCRIPT)?).await?;
    let of_scripts = positions(Worker::Script);
    ensure!(of_scripts.len() > 12, "there are 12 positions");
    for ((name, script), (_, plugin)) in of_scripts.iter().zip(positions(Worker::Plugin)) {
        let mut results = Vec::new();
        for (worker, workflow) in [(Worker::Script, script), (Worker::Plugin, &plugin)] {
            put(&stack, "inner", &positions(worker)[0].1).await?;
            let ended = finish(&stack, definition(workflow), json!({"text": "Ab"})).await?;
            results.push(outputs(&ended).with_context(|| format!("{worker:?} {name}"))?);
        }
        ensure!(results[0] == results[1], "{name}: {results:?}");
        ensure!(results[0]["out"] != Value::Null, "{name}: {results:?}");
    }
    // By itself, and as a tool by each of its names.
    let node = SingleNode {
        full_type: "shout:Upper".to_owned(),
        config_values_json: json!({"mark": "?"}).to_string(),
    };
    let ended = finish(&stack, Target::Node(node), json!({"text": "Ab"})).await?;
    let whole = json!({"upper": "AB?", "size": 2, "lines": "ab\n"});
    ensure!(outputs(&ended)? == whole, "{:?}", ended.run.outcome);
    for name in ["node:shout:Upper", "shout:Upper", "node__shout__Upper"] {
        let result = call(&stack, (name, ""), json!({"text": "Ab", "mark": "?"})).await?;
        let answer: Value = serde_json::from_str(&result.output_json)?;
        ensure!(answer == whole, "{result:?}");
    }
    // As a part and as a run of one workflow, in this order.
    let both = workflow(
        vec![
            json!({"id": "r", "type": "core:RunWorkflow", "configValues": {"workflowId": "inner"}}),
            json!({"id": "g", "type": "core:NodeGroup", "configValues": {"referencedWorkflowId": "inner"}}),
        ],
        vec![
            edge("in", "text", "r", "text"),
            edge("r", "out", "g", "text"),
            edge("g", "out", "end", "out"),
        ],
        json!({"dataFlowType": "WILDCARD"}),
    );
    let ended = finish(&stack, definition(&both), json!({"text": "a"})).await?;
    ensure!(
        outputs(&ended)? == json!({"out": "A!!"}),
        "{:?}",
        ended.run.outcome
    );
    // Bound to a tool of another name.
    let bound = json!({
        "id": "louder",
        "description": "Shouts.",
        "implementation": {"type": "node", "nodeType": "shout:Upper", "configValues": {"mark": "!!"}},
    });
    let request = PutToolRequest {
        definition_json: bound.to_string(),
        ..PutToolRequest::default()
    };
    stack.registry().put_tool(request).await?;
    let result = call(&stack, ("louder", ""), json!({"text": "a"})).await?;
    ensure!(result.output_json.contains("A!!"), "{result:?}");
    let result = call(&stack, ("shout:Upper", ""), json!({"mark": 1})).await?;
    ensure!(code_of(&result) == "invalid_arguments", "{result:?}");
    Ok(())
}

/// Waits for a signal, and then shouts.
fn waiting() -> Value {
    let signal = json!({"id": "go", "type": "core:WaitSignal", "configValues": {"name": "go"}});
    workflow(
        vec![signal, Worker::Plugin.node("w", "", json!({}))],
        vec![
            edge("in", "text", "go", "value"),
            edge("go", "value", "w", "text"),
            edge("w", "upper", "end", "out"),
        ],
        json!({"dataFlowType": "STRING"}),
    )
}

fn waiting_runs() -> anyhow::Result<usize> {
    size("TAVERN_TEST_WAITING", WAITING)
}

/// Starts runs that wait for a signal before the node of the plugin.
async fn wait_before(stack: &Stack, runs: usize) -> anyhow::Result<Vec<String>> {
    let mut ids = Vec::new();
    for _ in 0..runs {
        let target = Target::WorkflowId("waiting".to_owned());
        ids.push(start(stack, target, &json!({"text": "a"})).await?);
    }
    Ok(ids)
}

async fn resume(stack: &Stack, run_id: &str) -> anyhow::Result<Value> {
    let signal = SignalRunRequest {
        run_id: run_id.to_owned(),
        name: "go".to_owned(),
        signal_id: "go".to_owned(),
        ..SignalRunRequest::default()
    };
    stack.runs().signal_run(signal).await?;
    outputs(&collect(&stack.runs(), run_id, 0).await?)
}

/// Checks that a start of the workflow is refused, naming type and plugin.
async fn refused(stack: &Stack, word: &str) -> anyhow::Result<()> {
    let target = Target::WorkflowId("waiting".to_owned());
    let refusal = start(stack, target, &json!({"text": "a"})).await;
    let status = refusal.err().context("the start is refused")?;
    ensure!(
        reason(&status) == Some(ErrorReason::PluginMissing)
            && status.code() == Code::FailedPrecondition,
        "{status:?}"
    );
    for named in ["`shout:Upper`", "`shout`", word] {
        ensure!(status.message().contains(named), "{named}: {status:?}");
    }
    let as_tool = call(stack, ("workflow:waiting", ""), json!({"text": "a"})).await?;
    ensure!(code_of(&as_tool) == "plugin_missing", "{as_tool:?}");
    Ok(())
}

async fn uninstall(stack: &Stack) -> anyhow::Result<()> {
    let request = UninstallPluginRequest {
        name: "shout".to_owned(),
        ..UninstallPluginRequest::default()
    };
    stack.plugins().uninstall_plugin(request).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn r107_runs_end_as_they_began_while_their_plugin_is_updated_and_removed()
-> anyhow::Result<()> {
    let mut stack = Stack::builder().separate().start().await?;
    let answers = |word: &str| SCRIPT.replace("given['text'].upper()", &format!("'{word}'"));
    install(&stack, &shout(1, "", &answers("first"))?).await?;
    put(&stack, "waiting", &waiting()).await?;
    let first = wait_before(&stack, waiting_runs()?.div_ceil(2)).await?;
    install(&stack, &shout(2, "", &answers("second"))?).await?;
    let second = wait_before(&stack, waiting_runs()?.div_ceil(2)).await?;
    let done = wait_before(&stack, 1).await?.remove(0);
    resume(&stack, &done).await?;
    uninstall(&stack).await?;
    refused(&stack, "not installed").await?;
    let request = ForkRunRequest {
        run_id: done,
        ..ForkRunRequest::default()
    };
    let fork = stack.workflow().fork_run(request).await.err();
    let fork = fork.context("a fork is a new run")?;
    ensure!(
        reason(&fork) == Some(ErrorReason::PluginMissing),
        "{fork:?}"
    );
    for service in ["workflow-execution", "tool-registry"] {
        stack.kill_service(service)?;
        stack.restart_service(service).await?;
    }
    for (runs, word) in [(&first, "first"), (&second, "second")] {
        for run_id in runs {
            let out = resume(&stack, run_id).await?;
            ensure!(out == json!({"out": format!("{word}!")}), "{out}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn r110_a_workflow_without_its_plugin_is_stored_and_does_not_run() -> anyhow::Result<()> {
    let deploy = tempfile::tempdir()?;
    for directory in ["agents", "models", "plugins", "workflows"] {
        std::fs::create_dir(deploy.path().join(directory))?;
    }
    let from_file = deploy.path().join("workflows/from_file.json");
    std::fs::write(&from_file, waiting().to_string())?;
    let stack = Stack::builder().deploy(deploy.path()).start().await?;
    put(&stack, "waiting", &waiting()).await?;
    refused(&stack, "not installed").await?;
    let request = ListWorkflowsRequest {
        with_references: true,
        ..ListWorkflowsRequest::default()
    };
    let listed = stack.workflow().list_workflows(request).await?.into_inner();
    ensure!(listed.workflows.len() == 2, "{listed:?}");
    ensure!(listed.diagnostics.is_empty(), "{listed:?}");
    for workflow in &listed.workflows {
        let mut marks = workflow.diagnostics.iter();
        let is_mark = |mark: &str| mark.contains("shout:Upper");
        ensure!(marks.any(|mark| is_mark(&mark.message)), "{workflow:?}");
    }
    let request = GetWorkflowRequest {
        workflow_id: "waiting".to_owned(),
    };
    let stored = stack.workflow().get_workflow(request).await?.into_inner();
    let stored = stored.workflow.context("there is a workflow")?;
    ensure!(stored.definition_json == waiting().to_string());
    // A mistake besides it is one as ever.
    let mut wrong = waiting();
    wrong["edges"][0]["target"] = json!("nothing");
    let refusal = put(&stack, "wrong", &wrong).await.err();
    let refusal = refusal.context("the workflow is refused")?;
    ensure!(reason(&refusal) == Some(ErrorReason::WorkflowInvalid));

    let option = "configOptions:\n  - {key: extensions.shout.key, type: string, required: true}\n";
    install(&stack, &shout(1, option, SCRIPT)?).await?;
    refused(&stack, "shout key=").await?;
    let request = UpdatePluginOptionsRequest {
        name: "shout".to_owned(),
        texts: [("extensions.shout.key".to_owned(), "k".to_owned())].into(),
        ..UpdatePluginOptionsRequest::default()
    };
    stack.plugins().update_plugin_options(request).await?;
    let run_id = wait_before(&stack, 1).await?.remove(0);
    ensure!(resume(&stack, &run_id).await? == json!({"out": "A!"}));
    for enabled in [false, true] {
        let request = SetPluginStateRequest {
            name: "shout".to_owned(),
            enabled,
        };
        stack.plugins().set_plugin_state(request).await?;
        match enabled {
            false => refused(&stack, "switched off").await?,
            true => drop(wait_before(&stack, 1).await?),
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn r116_node_types_of_plugins_are_listed_with_those_of_the_engine() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    install(&stack, &shout(1, "", SCRIPT)?).await?;
    let request = ListNodeTypesRequest {
        page_size: 500,
        ..ListNodeTypesRequest::default()
    };
    let listed = stack.workflow().list_node_types(request).await?;
    let listed = listed.into_inner().node_types;
    let upper = listed.iter().find(|node| node.full_type == "shout:Upper");
    let upper = upper.context("the type is listed")?;
    ensure!(upper.plugin == "shout" && upper.category == "text" && upper.read_only);
    let keys: Vec<&str> = upper.outputs.iter().map(|slot| slot.key.as_str()).collect();
    ensure!(keys == ["upper", "size", "lines"], "{keys:?}");
    ensure!(
        listed
            .iter()
            .any(|node| node.full_type == "core:Script" && node.plugin.is_empty())
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn r116_a_wrong_answer_of_a_handler_fails_its_node_and_names_the_output() -> anyhow::Result<()>
{
    let stack = Stack::all_in_one().await?;
    let answer = |python: &str| {
        format!(
            "import json, os\nout = ({python}).encode()\nwhile out: out = out[os.write(3, out):]\n"
        )
    };
    let whole = "{'upper': 'A', 'size': 1, 'lines': ''";
    for (at, (script, code, named)) in (1..).zip([
        (answer("'no json'"), "script_output_malformed", "JSON"),
        (answer("json.dumps([1])"), "output_invalid", "an object"),
        (
            answer("json.dumps({'upper': 'A'})"),
            "output_invalid",
            "`size`",
        ),
        (
            answer(&format!("json.dumps({whole}, 'more': 1}})")),
            "output_invalid",
            "`more`",
        ),
        (
            answer("json.dumps({'upper': 1, 'size': 1, 'lines': ''})"),
            "output_invalid",
            "`upper`",
        ),
        (
            answer("json.dumps({'upper': 'A' * (10 << 20), 'size': 1, 'lines': ''})"),
            "",
            "bytes",
        ),
        ("import sys\nsys.exit(3)\n".to_owned(), "", "3"),
        // The report of a failure is one, whatever was shown before.
        (
            format!(
                "print('shown')\n{}",
                answer("json.dumps({'success': False, 'error': {'message': 'too loud'}})")
            ),
            "script_error",
            "too loud",
        ),
    ]) {
        install(&stack, &shout(at, "", &script)?).await?;
        let ended = finish(
            &stack,
            definition(&positions(Worker::Plugin)[0].1),
            json!({"text": "a"}),
        );
        let ended = ended.await?;
        let error = ended.run.outcome.clone().unwrap_or_default().error;
        let error = error.with_context(|| format!("{script} fails"))?;
        ensure!(code.is_empty() || error.code == code, "{script}: {error:?}");
        ensure!(error.message.contains(named), "{script}: {error:?}");
        ensure!(error.details_json.contains("shout:Upper"), "{error:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn r116_the_node_of_the_guide_draws_a_qr_code() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let tool = ("qr-code:Draw", "");
    let text = json!({"text": "https://example.com", "scale": 2});
    let unbuilt = call(&stack, tool, text.clone()).await?;
    ensure!(code_of(&unbuilt) == "packages_missing", "{unbuilt:?}");
    build_dependencies(&stack, "deploy/plugins/qr-code")?;
    let node = SingleNode {
        full_type: tool.0.to_owned(),
        config_values_json: json!({"scale": 2}).to_string(),
    };
    let inputs = json!({"text": "https://example.com"});
    let drawn = outputs(&finish(&stack, Target::Node(node), inputs).await?)?;
    ensure!(drawn["modules"] == 25, "{drawn}");
    let image = drawn["image"].as_str().unwrap_or_default();
    // The signature of PNG and its header: a border of 4 modules on each side, 2 pixels a module.
    let image = base64::engine::general_purpose::STANDARD.decode(image)?;
    let side = (25_u32 + 2 * 4) * 2;
    ensure!(image.starts_with(b"\x89PNG\r\n\x1a\n"));
    ensure!(image[16..20] == side.to_be_bytes(), "{:?}", &image[16..20]);
    let long = call(&stack, tool, json!({"text": "x".repeat(4_000)})).await?;
    ensure!(code_of(&long) == "script_error", "{long:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn r116_a_node_in_a_mode_has_the_slots_of_the_mode() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let text = |required: bool| json!({"dataFlowType": "STRING", "required": required});
    let node = json!({
        "type": "Join",
        "inputs": {"one": text(true)},
        "outputs": {"joined": {"dataFlowType": "STRING"}},
        "modeConfigKey": "of",
        "modes": {
            "one": {"inputs": {"one": text(true)}, "outputs": {"joined": {"dataFlowType": "STRING"}}},
            "two": {"inputs": {"left": text(true), "right": text(true)}, "outputs": {"both": {"dataFlowType": "STRING"}}},
        },
        "handler": {"script": "python3 join.py"},
    });
    let script = "import json, sys\n\
        given = json.load(sys.stdin)\n\
        both = given.get('of') == 'two'\n\
        print(json.dumps({'both': given['left'] + given['right']} if both else {'joined': given['one']}))\n";
    let files = vec![
        file(
            "plugin.yaml",
            "name: join\nversion: 1.0.0\nnodes: {entry: nodes}\n",
        ),
        file("nodes/join.node.json", node.to_string()),
        file("join.py", script),
    ];
    install(&stack, &package(files)?).await?;
    for (config, inputs, expected) in [
        (json!({}), json!({"one": "a"}), json!({"joined": "a"})),
        (
            json!({"of": "one"}),
            json!({"one": "a"}),
            json!({"joined": "a"}),
        ),
        (
            json!({"of": "two"}),
            json!({"left": "a", "right": "b"}),
            json!({"both": "ab"}),
        ),
    ] {
        let node = SingleNode {
            full_type: "join:Join".to_owned(),
            config_values_json: config.to_string(),
        };
        let ended = finish(&stack, Target::Node(node), inputs).await?;
        ensure!(
            outputs(&ended)? == expected,
            "{config}: {:?}",
            ended.run.outcome
        );
    }
    Ok(())
}
