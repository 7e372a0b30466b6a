//! The tools of an inventory under each of their names: the prompt, the explanation and the call agree, for
//! every caller (rules N7, R501, R503, G206 and G307).

use std::path::Path;

use anyhow::{Context, ensure};
use contracts::tavern::common::v1::{CallResult, CallStatus, RunState, run_event::Kind};
use contracts::tavern::gateway::v1::{
    AgentTarget, InvokeTextRequest, ParseTextRequest, RenderToolsRequest, ToolScope,
    agent_target::Input,
};
use contracts::tavern::registry::v1::{
    AvailabilityScope, AvailabilityVerdict, ExplainAvailabilityRequest,
};
use serde_json::{Value, json};
use testkit::{Followed, Stack, invoke};

use crate::scenes;
use crate::text::{turn, user_message};

const TOOLS: &str = "tool_ids_inventory";
const SKILLS: &str = "skill_workflow_ids_inventory";

/// A tool under a name that an inventory has for it.
struct Listed {
    list: &'static str,
    name: &'static str,
    /// The id by which the registry knows the tool.
    id: &'static str,
    /// The name that the model is shown.
    shown: &'static str,
    arguments: &'static str,
}

const CLOCK: &str = "system:get_current_time";
const MERGE: &str = "node:core:TextMerge";
const GREET: &str = "workflow:greet";
const SCOUT: &str = "agent:scout";

/// Returns the tools under every kind of name.
fn listed() -> Vec<Listed> {
    let clock = ("system__get_current_time", "");
    let merge = (
        "node__core__TextMerge",
        "<text_inputs><item>ash</item></text_inputs>",
    );
    let greet = ("workflow__greet", "<name>Mara</name>");
    let scout = ("agent__scout", "<message>Is it safe?</message>");
    let state = (
        "core__UpdatePrivateState",
        "<key>mood</key><value>calm</value>",
    );
    let all = [
        (TOOLS, CLOCK, CLOCK, clock),
        (TOOLS, "system__get_current_time", CLOCK, clock),
        (TOOLS, MERGE, MERGE, merge),
        (TOOLS, "node__core__TextMerge", MERGE, merge),
        (TOOLS, "core:TextMerge", MERGE, merge),
        (TOOLS, GREET, GREET, greet),
        (TOOLS, "workflow__greet", GREET, greet),
        (TOOLS, "skill_greet", GREET, greet),
        (TOOLS, "workflows/skills/greet.json", GREET, greet),
        (SKILLS, GREET, GREET, greet),
        (SKILLS, "workflows/skills/greet.json", GREET, greet),
        (TOOLS, SCOUT, SCOUT, scout),
        (TOOLS, "agent__scout", SCOUT, scout),
        (
            TOOLS,
            "core:UpdatePrivateState",
            "UpdatePrivateStateTool",
            state,
        ),
    ];
    let listed = all.map(|(list, name, id, (shown, arguments))| Listed {
        list,
        name,
        id,
        shown,
        arguments,
    });
    listed.into()
}

/// Writes calls of one tool by several names.
fn calls<'a>(names: impl IntoIterator<Item = &'a str>, arguments: &str) -> String {
    let call = |name: &str| format!("<ACTION><{name}>{arguments}</{name}></ACTION>\n");
    names.into_iter().map(call).collect()
}

/// The parts of a deployment.
#[derive(Default)]
struct Deploy {
    models: String,
}

impl Deploy {
    /// Writes an agent with a scripted model.
    fn agent(&mut self, deploy: &Path, profile: &Value, turns: &Value) -> anyhow::Result<()> {
        let id = profile["id"].as_str().context("it has an id")?;
        let mut profile = profile.clone();
        profile["name"] = id.into();
        profile["custom_metadata"] =
            json!({"tavern": {"model": id, "stop_at_unknown_tool": false}});
        let write =
            |path: String, content: &Value| std::fs::write(deploy.join(path), content.to_string());
        write(format!("agents/{id}.json"), &profile)?;
        write(format!("models/{id}.json"), &json!({ "turns": turns }))?;
        self.models += &format!("[models.{id}]\nprovider = \"scripted\"\nscript = \"{id}.json\"\n");
        Ok(())
    }

    fn start(self, deploy: &Path) -> anyhow::Result<()> {
        Ok(std::fs::write(
            deploy.join("agent-runtime.toml"),
            self.models,
        )?)
    }
}

/// Creates the directories of a deployment with a workflow that greets and an agent that answers.
fn prepare(deploy: &Path) -> anyhow::Result<Deploy> {
    for directory in ["agents", "models", "plugins", "scenes", "workflows"] {
        std::fs::create_dir(deploy.join(directory))?;
    }
    let greet = json!({
        "nodes": [
            {"id": "in", "type": "core:GroupInput"},
            {"id": "greet", "type": "core:FormatPrompt", "inputValues": {"template": "Hello, {name}!"}},
            {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": [
            {"id": "a", "source": "in", "sourceHandle": "name", "target": "greet", "targetHandle": "name"},
            {"id": "b", "source": "greet", "sourceHandle": "prompt", "target": "out", "targetHandle": "greeting"},
        ],
        "interfaceInputs": {"name": {"dataFlowType": "STRING", "required": true}},
        "interfaceOutputs": {"greeting": {"dataFlowType": "STRING"}},
    });
    std::fs::write(deploy.join("workflows/greet.json"), greet.to_string())?;
    let mut written = Deploy::default();
    let answers = json!([{"answer": {"text": "No."}}]);
    written.agent(deploy, &json!({"id": "scout"}), &answers)?;
    Ok(written)
}

/// Returns the results of the calls of the run itself.
fn results(followed: &Followed, run_id: &str) -> Vec<CallResult> {
    let own = followed
        .events
        .iter()
        .filter(|event| event.run_id == run_id);
    let settled = own.filter_map(|event| match &event.kind {
        Some(Kind::CallSettled(settled)) => settled.result.clone(),
        _ => None,
    });
    settled.collect()
}

/// Ensures that as many calls of a run have succeeded, and no other ended.
fn all_succeeded(results: &[CallResult], count: usize, whose: &str) -> anyhow::Result<()> {
    let mut succeeded = results.iter();
    ensure!(
        results.len() == count && succeeded.all(|result| result.status() == CallStatus::Succeeded),
        "{whose}: {results:?}"
    );
    Ok(())
}

/// Returns the registry's explanations of a tool under several names.
async fn explained(
    stack: &Stack,
    scope: AvailabilityScope,
    names: &[&str],
) -> anyhow::Result<Vec<AvailabilityVerdict>> {
    let request = ExplainAvailabilityRequest {
        tool_ids: names.iter().map(|name| (*name).to_owned()).collect(),
        scope: Some(scope),
        ..ExplainAvailabilityRequest::default()
    };
    let explained = stack.registry().explain_availability(request).await?;
    let tools = explained.into_inner().tools.into_iter();
    Ok(tools.map(|tool| tool.verdict()).collect())
}

fn scope_of(profile_id: &str) -> Option<ToolScope> {
    Some(ToolScope {
        profile_id: profile_id.to_owned(),
        ..ToolScope::default()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn r503_prompt_explanation_and_call_agree_on_a_tool_under_each_name() -> anyhow::Result<()> {
    let deploy = tempfile::tempdir()?;
    let mut written = prepare(deploy.path())?;
    let listed = listed();
    for (row, tool) in listed.iter().enumerate() {
        // Another letter case is read as well (rule N6).
        let shouted = tool.shown.to_uppercase();
        let names = [tool.name, tool.shown, tool.id, &shouted];
        let turns = json!([
            {
                "expect": {"system_contains": [format!("<{}", tool.shown)]},
                "answer": {"text": calls(names, tool.arguments)},
            },
            {"answer": {"text": "Done."}},
        ]);
        let profile = json!({"id": format!("agent{row}"), tool.list: [tool.name]});
        written.agent(deploy.path(), &profile, &turns)?;
    }
    written.start(deploy.path())?;
    let stack = Stack::builder().deploy(deploy.path()).start().await?;
    for (row, tool) in listed.iter().enumerate() {
        let agent = format!("agent{row}");
        let whose = format!("{} in {}", tool.name, tool.list);
        let ended = invoke(&stack.gateway(), user_message(&agent, "Do it.")).await?;
        let outcome = ended.run.outcome.as_ref().context("the turn has ended")?;
        ensure!(
            outcome.state() == RunState::Succeeded,
            "{whose}: {outcome:?}"
        );
        all_succeeded(&results(&ended, &ended.run.run_id), 4, &whose)?;

        let of_profile = AvailabilityScope {
            profile_id: agent.clone(),
            ..AvailabilityScope::default()
        };
        let of_turn = AvailabilityScope {
            run_id: ended.run.run_id.clone(),
            ..AvailabilityScope::default()
        };
        for scope in [of_profile, of_turn] {
            let verdicts = explained(&stack, scope, &[tool.name, tool.shown, tool.id]).await?;
            ensure!(
                verdicts == [AvailabilityVerdict::Available; 3],
                "{whose}: {verdicts:?}"
            );
        }

        let request = RenderToolsRequest {
            scope: scope_of(&agent),
            ..RenderToolsRequest::default()
        };
        let prompt = stack.gateway().render_tools(request).await?.into_inner();
        ensure!(prompt.tool_ids == [tool.id], "{whose}: {prompt:?}");
        let request = ParseTextRequest {
            text: calls([tool.name, tool.id], tool.arguments),
            scope: scope_of(&agent),
            ..ParseTextRequest::default()
        };
        let parsed = stack.gateway().parse_text(request).await?.into_inner();
        let calls = parsed.parsed.unwrap_or_default().calls;
        let read = calls
            .iter()
            .filter(|call| call.tool_id == tool.id && call.problems.is_empty());
        ensure!(read.count() == 2, "{whose}: {calls:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn r503_prompt_explanation_and_call_agree_on_a_tool_that_an_agent_lacks() -> anyhow::Result<()>
{
    let deploy = tempfile::tempdir()?;
    let mut written = prepare(deploy.path())?;
    // An inventory is exact: another letter case is no name of a tool.
    for (agent, name) in [
        ("has_another", MERGE),
        ("drifted", "System:Get_Current_Time"),
    ] {
        let turns = json!([
            {
                "expect": {"system_lacks": ["get_current_time"]},
                "answer": {"text": calls([CLOCK, "system__get_current_time"], "")},
            },
            {"answer": {"text": "Done."}},
        ]);
        written.agent(deploy.path(), &json!({"id": agent, TOOLS: [name]}), &turns)?;
    }
    written.start(deploy.path())?;
    let stack = Stack::builder().deploy(deploy.path()).start().await?;
    for agent in ["has_another", "drifted"] {
        let ended = invoke(&stack.gateway(), user_message(agent, "How late is it?")).await?;
        let results = results(&ended, &ended.run.run_id);
        let mut succeeded = results.iter();
        ensure!(
            succeeded.all(|result| result.status() != CallStatus::Succeeded),
            "{agent}: {results:?}"
        );
        let scope = AvailabilityScope {
            profile_id: agent.to_owned(),
            ..AvailabilityScope::default()
        };
        let verdicts = explained(&stack, scope, &[CLOCK, "system__get_current_time"]).await?;
        ensure!(
            verdicts == [AvailabilityVerdict::ToolNotAvailable; 2],
            "{agent}: {verdicts:?}"
        );
    }
    Ok(())
}

/// A workflow that lists tools for a model by each of their names and calls some of them. As it has an output
/// `full_text`, it can also deliberate.
fn uses_tools(names: &[&str]) -> Value {
    let call = |id: &str, tool: &str, inputs: Value| {
        let mut values = inputs;
        values["tool_id"] = tool.into();
        json!({"id": id, "type": "core:ExecuteTool", "inputValues": values})
    };
    json!({
        "nodes": [
            {"id": "in", "type": "core:GroupInput"},
            {"id": "offer", "type": "core:AvailableTools", "configValues": {"toolIds": names}},
            call("clock", "system__get_current_time", json!({})),
            call("merge", "core:TextMerge", json!({"text_inputs": ["ash"]})),
            call("greet", "workflows/skills/greet.json", json!({"name": "Mara"})),
            call("ask", "agent__scout", json!({"message": "Is it safe?"})),
            call("handles", "system:list_handles", json!({})),
            {"id": "say", "type": "core:FormatPrompt", "inputValues": {"template": "Done."}},
            {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": [
            {"id": "a", "source": "offer", "sourceHandle": "manifest", "target": "out", "targetHandle": "offered"},
            {"id": "b", "source": "say", "sourceHandle": "prompt", "target": "out", "targetHandle": "full_text"},
        ],
        "interfaceInputs": {"conversation": {"dataFlowType": "ARRAY"}},
        "interfaceOutputs": {
            "offered": {"dataFlowType": "STRING"},
            "full_text": {"dataFlowType": "STRING"},
        },
    })
}

/// Writes agents that call each of the tools: in a turn, below another agent, in a scene and in a deliberation.
/// Returns the number of calls that each of them makes.
fn write_agents(written: &mut Deploy, deploy: &Path, listed: &[Listed]) -> anyhow::Result<usize> {
    let names = |list: &str| -> Vec<&str> {
        let listed = listed.iter().filter(|tool| tool.list == list);
        listed.map(|tool| tool.name).collect()
    };
    let mut tools = names(TOOLS);
    tools.push("workflow__use");
    let inventory = |id: &str| json!({"id": id, TOOLS: tools, SKILLS: names(SKILLS)});
    let mut distinct: Vec<&Listed> = Vec::new();
    for tool in listed {
        if distinct.iter().all(|other| other.id != tool.id) {
            distinct.push(tool);
        }
    }
    let texts = distinct
        .iter()
        .map(|tool| calls([tool.shown], tool.arguments));
    let text: String = texts.chain([calls(["workflow__use"], "")]).collect();
    let turns = json!([{"answer": {"text": text}}, {"answer": {"text": "Done."}}]);
    written.agent(deploy, &inventory("worker"), &turns)?;
    let mut thinker = inventory("thinker");
    thinker["core_deliberation_workflow_id"] = "use".into();
    written.agent(deploy, &thinker, &json!([]))?;
    let asks = |whom: &str| {
        let call = calls(
            [format!("agent__{whom}").as_str()],
            "<message>Work.</message>",
        );
        json!([{"answer": {"text": call}}, {"answer": {"text": "Done."}}])
    };
    let chief = json!({"id": "chief", TOOLS: ["agent__worker"]});
    written.agent(deploy, &chief, &asks("worker"))?;
    let head = json!({"id": "head", TOOLS: ["agent__worker_1"]});
    written.agent(deploy, &head, &asks("worker_1"))?;
    let scene = json!({"id": "yard", "agent_instances": [
        {"instance_id": "head_1", "profile_id": "head"},
        {"instance_id": "worker_1", "profile_id": "worker"},
    ]});
    std::fs::write(deploy.join("scenes/yard.json"), scene.to_string())?;
    Ok(distinct.len() + 1)
}

#[tokio::test(flavor = "multi_thread")]
async fn g206_each_carrier_of_an_agent_may_call_the_tools_that_its_inventory_names()
-> anyhow::Result<()> {
    let deploy = tempfile::tempdir()?;
    let mut written = prepare(deploy.path())?;
    let listed = listed();
    // Nodes name tools as an inventory does, but for the names that only agents have.
    let for_nodes = listed
        .iter()
        .filter(|tool| tool.list == TOOLS && !tool.id.ends_with("Tool"));
    let for_nodes: Vec<&str> = for_nodes.map(|tool| tool.name).collect();
    let workflow = uses_tools(&for_nodes).to_string();
    std::fs::write(deploy.path().join("workflows/use.json"), workflow)?;

    let count = write_agents(&mut written, deploy.path(), &listed)?;
    written.start(deploy.path())?;
    let stack = Stack::builder().deploy(deploy.path()).start().await?;

    let scene = scenes::start(&stack, "yard").await?;
    let in_scene = |profile: &str, instance: &str| {
        turn(AgentTarget {
            profile_id: profile.to_owned(),
            conversation_id: format!("{scene}.{instance}"),
            input: Some(Input::UserMessage("Work.".to_owned())),
            ..AgentTarget::default()
        })
    };
    for (whose, request, worker) in [
        ("the turn", user_message("worker", "Work."), None),
        (
            "a sub-agent",
            user_message("chief", "Work."),
            Some("worker"),
        ),
        (
            "an agent of a scene",
            in_scene("head", "head_1"),
            Some("worker"),
        ),
    ] {
        let ended = invoke(&stack.gateway(), request).await?;
        let own = results(&ended, &ended.run.run_id);
        let results = match worker {
            None => own,
            Some(_) => {
                all_succeeded(&own, 1, whose)?;
                results(&ended, &own[0].child_run_id)
            }
        };
        all_succeeded(&results, count, whose)?;
        // Below it, the workflow lists every tool, and its calls succeed.
        let used = results.last().context("it calls the workflow")?;
        offers_each(&used.output_json, &for_nodes, &listed)?;
    }

    let ended = invoke(&stack.gateway(), user_message("thinker", "Work.")).await?;
    ensure!(
        ended.run.state() == RunState::Succeeded,
        "{:?}",
        ended.run.outcome
    );
    let below = ended
        .events
        .iter()
        .filter(|event| event.parent_path == [ended.run.run_id.clone()]);
    let run = below
        .map(|event| &event.run_id)
        .next()
        .context("the workflow runs")?;
    all_succeeded(&results(&ended, run), 5, "a deliberation")?;
    Ok(())
}

/// Ensures that a workflow lists the tools of these names.
fn offers_each(manifest: &str, names: &[&str], listed: &[Listed]) -> anyhow::Result<()> {
    for tool in listed.iter().filter(|tool| names.contains(&tool.name)) {
        let is_listed = manifest.contains(&format!("<{}", tool.shown));
        ensure!(is_listed, "{} is not in {manifest}", tool.name);
    }
    Ok(())
}

fn writes(text: String) -> InvokeTextRequest {
    turn(AgentTarget {
        profile_id: "clerk".to_owned(),
        conversation_id: "desk".to_owned(),
        input: Some(Input::ModelText(text)),
        ..AgentTarget::default()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn l4_the_tools_for_handles_may_be_called_by_every_agent_once_they_are_shown()
-> anyhow::Result<()> {
    let deploy = tempfile::tempdir()?;
    let mut written = prepare(deploy.path())?;
    let clerk = json!({"id": "clerk", TOOLS: ["skill_greet"]});
    written.agent(deploy.path(), &clerk, &json!([]))?;
    written.start(deploy.path())?;
    let mut stack = Stack::builder().deploy(deploy.path()).start().await?;
    let detached = "<|[REQUEST_TOOL]|>\ncommand:「始」skill_greet「末」\narchery:「始」no_reply「末」\n\
                    name:「始」Mara「末」\n<|[END_TOOL]|>";
    let ended = invoke(&stack.gateway(), writes(detached.to_owned())).await?;
    let started = results(&ended, &ended.run.run_id);
    all_succeeded(&started, 1, "a call without a reply")?;
    let handle = &started[0].effect_id;
    for restarted in [false, true] {
        if restarted {
            stack.kill()?;
            stack.restart().await?;
        }
        let handle = format!("<handle>{handle}</handle>");
        let text = calls(["system:list_handles"], "")
            + &calls(["system:read_stream", "system__read_stream"], &handle)
            + &calls(["system:cancel"], &handle);
        let ended = invoke(&stack.gateway(), writes(text)).await?;
        all_succeeded(
            &results(&ended, &ended.run.run_id),
            4,
            "the tools for handles",
        )?;
        let scope = AvailabilityScope {
            run_id: ended.run.run_id,
            ..AvailabilityScope::default()
        };
        let names = [
            "system:list_handles",
            "system__read_stream",
            "system:cancel",
        ];
        let verdicts = explained(&stack, scope, &names).await?;
        ensure!(
            verdicts == [AvailabilityVerdict::Available; 3],
            "{verdicts:?}"
        );
    }
    Ok(())
}
