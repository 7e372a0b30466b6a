//! Agents whose answers come from a deliberation workflow (rules G201 to G205).

use contracts::tavern::agent::v1::{
    PutProfileRequest, profile_service_client::ProfileServiceClient,
};
use contracts::tavern::common::v1::{RunEvent, RunState, StopReason, run_event::Kind};
use contracts::tavern::run::v1::{CancelRunRequest, ListRunsRequest};
use contracts::tavern::workflow::v1::PutWorkflowRequest;
use serde_json::{Value, json};
use testkit::{Stack, collect, eventually, invoke, repository, until};

use crate::text::{failing_agents, user_message};

const QUESTION: &str = "May I walk into the wood today?";

fn read(path: &str) -> anyhow::Result<Value> {
    let text = std::fs::read_to_string(repository().join("deploy").join(path))?;
    Ok(serde_json::from_str(&text)?)
}

pub(crate) async fn put(stack: &Stack, profile: &Value) -> anyhow::Result<()> {
    let mut profiles = ProfileServiceClient::new(
        grpc_kit::remote(&grpc_kit::ClientSettings::to(stack.address()))?.outermost(),
    );
    let request = PutProfileRequest {
        profile_json: profile.to_string(),
        ..PutProfileRequest::default()
    };
    profiles.put_profile(request).await?;
    Ok(())
}

/// The turn's own events, without values that vary with the model's name, the clock or the borders
/// of chunks.
fn story(events: &[RunEvent], run_id: &str) -> Vec<Value> {
    let mut said = String::new();
    let mut story = Vec::new();
    for event in events.iter().filter(|event| event.run_id == run_id) {
        let entry = match event.kind.as_ref() {
            Some(Kind::Text(text)) => {
                said.push_str(&text.text);
                continue;
            }
            // A model reports its usage with its answer.
            Some(Kind::UsageReported(_)) => continue,
            Some(Kind::ModelRequested(asked)) => json!(["asked", asked.messages]),
            Some(Kind::ModelAnswered(answered)) => json!(["answered", said.clone(), answered.text]),
            Some(Kind::ToolSelected(selected)) => {
                let call = selected.call.clone().unwrap_or_default();
                json!(["selected", call.tool_id, call.arguments_json])
            }
            Some(Kind::CallSettled(settled)) => {
                let result = settled.result.clone().unwrap_or_default();
                json!(["settled", result.tool_id, result.output_json])
            }
            Some(Kind::Observation(observation)) => json!(["observed", observation.text]),
            Some(Kind::RunFinished(finished)) => {
                let outcome = finished.outcome.clone().unwrap_or_default();
                json!(["finished", outcome.result_json, outcome.stop_reason])
            }
            Some(kind) => json!(name_of(kind)),
            None => continue,
        };
        story.push(entry);
    }
    story
}

/// The name of a kind of event.
fn name_of(kind: &Kind) -> String {
    let name = format!("{kind:?}");
    name.split('(').next().unwrap_or_default().to_owned()
}

/// The state of each run of a workflow.
async fn runs_of(stack: &Stack, subject: &str) -> anyhow::Result<Vec<RunState>> {
    let request = ListRunsRequest {
        subject: subject.to_owned(),
        ..ListRunsRequest::default()
    };
    let listed = stack.runs().list_runs(request).await?.into_inner();
    Ok(listed.runs.iter().map(|run| run.state()).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn g204_a_workflow_and_the_built_in_deliberation_give_the_same_events() -> anyhow::Result<()>
{
    for stack in [Stack::builder(), Stack::builder().separate()] {
        let stack = stack.start().await?;
        let mut built_in = read("agents/elara.json")?;
        built_in["id"] = "built_in".into();
        built_in["core_deliberation_workflow_id"] = "".into();
        put(&stack, &built_in).await?;
        let mut stories = Vec::new();
        for agent in ["built_in", "elara"] {
            let turn = invoke(&stack.gateway(), user_message(agent, QUESTION)).await?;
            assert_eq!(
                turn.run.state(),
                RunState::Succeeded,
                "{:?}",
                turn.run.outcome
            );
            stories.push(story(&turn.events, &turn.run.run_id));
        }
        assert_eq!(stories[0], stories[1]);
        let model = |kind: &Value| kind[0] == "answered";
        assert_eq!(stories[1].iter().filter(|kind| model(kind)).count(), 2);
        assert_eq!(
            runs_of(&stack, "npc_deliberation").await?,
            [RunState::Succeeded; 2]
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g206_what_cannot_deliberate_fails_the_turn_and_is_named() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    for (stored, code, named) in [
        ("", "deliberation_missing", "no workflow is called `later`"),
        ("price_item", "deliberation_invalid", "full_text"),
        ("brief_answer", "deliberation_invalid", "question"),
    ] {
        let mut profile = read("agents/elara.json")?;
        profile["id"] = "other".into();
        profile["core_deliberation_workflow_id"] = "later".into();
        if stored.is_empty() {
            put(&stack, &profile).await?;
        } else {
            // A workflow that is stored behind the profile that names it is looked at when a turn begins.
            let request = PutWorkflowRequest {
                workflow_id: "later".to_owned(),
                definition_json: read(&format!("workflows/{stored}.json"))?.to_string(),
                ..PutWorkflowRequest::default()
            };
            stack.workflow().put_workflow(request).await?;
        }
        let turn = invoke(&stack.gateway(), user_message("other", QUESTION)).await?;
        let error = turn
            .run
            .outcome
            .unwrap_or_default()
            .error
            .unwrap_or_default();
        assert_eq!(error.code, code, "{stored}: {}", error.message);
        assert!(error.message.contains(named), "{stored}: {}", error.message);
    }
    Ok(())
}

/// Stores a workflow that requests a slow model.
async fn put_slow_deliberation(stack: &Stack) -> anyhow::Result<()> {
    let mut definition = read("workflows/npc_deliberation.json")?;
    definition["nodes"][4]["inputValues"]["model"] = "slow_thinker".into();
    let request = PutWorkflowRequest {
        workflow_id: "slow_deliberation".to_owned(),
        definition_json: definition.to_string(),
        ..PutWorkflowRequest::default()
    };
    stack.workflow().put_workflow(request).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_of_the_turn_ends_the_workflow_that_deliberates() -> anyhow::Result<()> {
    let stack = Stack::builder().deploy(failing_agents()).start().await?;
    put_slow_deliberation(&stack).await?;
    put(
        &stack,
        &json!({"id": "slow", "core_deliberation_workflow_id": "slow_deliberation"}),
    )
    .await?;
    let writes = |event: &RunEvent| matches!(event.kind, Some(Kind::Text(_)));
    let message = user_message("slow", QUESTION);
    let (run_id, _) = until(&stack.gateway(), message, writes).await?;
    let request = CancelRunRequest {
        run_id: run_id.clone(),
        reason: "enough".to_owned(),
    };
    stack.runs().cancel_run(request).await?;
    let ended = collect(&stack.runs(), &run_id, 0).await?;
    assert_eq!(ended.run.state(), RunState::Cancelled);
    eventually("the workflow to end", || async {
        let states = runs_of(&stack, "slow_deliberation").await.ok()?;
        (states == [RunState::Cancelled]).then_some(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn g703_a_workflow_that_deliberates_ends_with_the_time_of_its_turn() -> anyhow::Result<()> {
    let stack = Stack::builder().deploy(failing_agents()).start().await?;
    put_slow_deliberation(&stack).await?;
    put(
        &stack,
        &json!({"id": "slow", "core_deliberation_workflow_id": "slow_deliberation",
                "custom_metadata": {"tavern": {"budgets": {"wall_seconds": 1}}}}),
    )
    .await?;
    let turn = invoke(&stack.gateway(), user_message("slow", QUESTION)).await?;
    let outcome = turn.run.outcome.unwrap_or_default();
    assert_eq!(outcome.stop_reason(), StopReason::Wall, "{outcome:?}");
    let states = runs_of(&stack, "slow_deliberation").await?;
    assert_eq!(states, [RunState::Failed]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g706_calls_that_each_round_of_a_workflow_repeats_end_the_turn() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let call = "<ACTION><GetPlayerInfo><player_id>player123</player_id></GetPlayerInfo></ACTION>";
    let definition = json!({
        "nodes": [
            {"id": "words", "type": "core:TextMerge", "inputValues": {"text_inputs": [call]}},
            {"id": "output", "type": "core:GroupOutput"},
        ],
        "edges": [{"id": "e", "source": "words", "sourceHandle": "merged_text",
                   "target": "output", "targetHandle": "full_text"}],
        "interfaceInputs": {},
        "interfaceOutputs": {"full_text": {"key": "full_text", "dataFlowType": "STRING"}},
    });
    let request = PutWorkflowRequest {
        workflow_id: "always_the_same".to_owned(),
        definition_json: definition.to_string(),
        ..PutWorkflowRequest::default()
    };
    stack.workflow().put_workflow(request).await?;
    let profile = json!({"id": "parrot", "core_deliberation_workflow_id": "always_the_same",
                         "tool_ids_inventory": ["GetPlayerInfo"]});
    put(&stack, &profile).await?;
    let turn = invoke(&stack.gateway(), user_message("parrot", "Who is it?")).await?;
    let outcome = turn.run.outcome.unwrap_or_default();
    assert_eq!(outcome.stop_reason(), StopReason::Repetition, "{outcome:?}");
    let remarks = turn.events.iter().filter_map(|event| match &event.kind {
        Some(Kind::Observation(observed)) if observed.index.is_none() => Some(&observed.text),
        _ => None,
    });
    let remarked: Vec<_> = remarks.collect();
    assert_eq!(remarked.len(), 1, "{remarked:?}");
    assert_eq!(runs_of(&stack, "always_the_same").await?.len(), 5);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_was_cut_off_finds_the_answer_of_its_workflow() -> anyhow::Result<()> {
    let mut stack = Stack::all_in_one().await?;
    let writes = |event: &RunEvent| matches!(event.kind, Some(Kind::Text(_)));
    let message = user_message("elara", QUESTION);
    let (run_id, _) = until(&stack.gateway(), message, writes).await?;
    stack.kill()?;
    stack.restart().await?;
    let ended = collect(&stack.runs(), &run_id, 0).await?;
    assert_eq!(
        ended.run.state(),
        RunState::Succeeded,
        "{:?}",
        ended.run.outcome
    );
    assert_eq!(
        runs_of(&stack, "npc_deliberation").await?,
        [RunState::Succeeded; 2]
    );
    Ok(())
}
