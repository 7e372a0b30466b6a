//! Bad input of every kind gets a typed answer that names the place and the remedy.

use contracts::tavern::common::v1::{
    CallError, CallStatus, ErrorReason, RunOptions, RunState, run_event::Kind,
};
use contracts::tavern::gateway::v1::{
    AgentTarget, CallsTarget, InvokeTextRequest, ToolScope, agent_target::Input,
};
use contracts::tavern::registry::v1::ListToolsRequest;
use contracts::tavern::workflow::v1::ValidateWorkflowRequest;
use testkit::{Followed, Stack, invoke};
use tonic::Code;

use crate::text::{calls, failing_agents, model_text, turn, user_message};

/// A text, and a part that its only observation must contain.
const TEXTS: [(&str, &str); 6] = [
    (
        "<ACTION><NoSuchTool></NoSuchTool></ACTION>",
        "Unknown tool ID",
    ),
    (
        "<ACTION><FileOperator.WriteFil></FileOperator.WriteFil></ACTION>",
        "FileOperator.WriteFile",
    ),
    (
        "<ACTION><FileOperator.WriteFile><filepath>a</filepath><content>x</content></FileOperator.WriteFile></ACTION>",
        "Unknown parameter 'filepath', did you mean 'filePath'?",
    ),
    (
        "<ACTION><FileOperator.WriteFile><filePath>a",
        "Observation: Error",
    ),
    ("<ACTION></ACTION>", "Observation: Error"),
    (
        "<|[REQUEST_TOOL]|>\nfilePath:「始」a「末」\n<|[END_TOOL]|>",
        "command",
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_text_that_cannot_be_carried_out_says_what_to_mend() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    for (text, observed) in TEXTS {
        let run = invoke(&stack.gateway(), model_text(text)).await?;
        let observations = observations(&run);
        assert!(
            observations.iter().any(|o| o.contains(observed)),
            "{text} gave {observations:?}"
        );
        let ran = run
            .events
            .iter()
            .any(|event| matches!(event.kind, Some(Kind::CallDispatched(_))));
        assert!(!ran, "{text} was carried out");
    }
    Ok(())
}

/// Python code for the interpreter, and the code of the error that it must end with.
const SCRIPTS: [(&str, &str); 3] = [
    ("import sys; sys.exit(3)", "script_exited"),
    ("import os; os.kill(os.getpid(), 11)", "script_signalled"),
    ("x = 'a' * (1 << 33)", ""),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_script_that_fails_is_a_typed_result() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    for (code, error_code) in SCRIPTS {
        let call = format!(
            "<ACTION><CodeInterpreter:execute><language>python</language><code>{code}</code></CodeInterpreter:execute></ACTION>"
        );
        let run = invoke(&stack.gateway(), model_text(&call)).await?;
        let (status, error) = settled(&run);
        assert_eq!(status, CallStatus::Failed, "{code}: {error:?}");
        assert!(error.code.starts_with(error_code), "{code}: {error:?}");
        assert!(
            !error.message.is_empty() && !error.details_json.is_empty(),
            "{code}: {error:?}"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_endpoint_that_is_down_fails_the_turn_and_says_so() -> anyhow::Result<()> {
    let stack = Stack::builder().deploy(failing_agents()).start().await?;
    let run = invoke(&stack.gateway(), user_message("no_model", "Hello?")).await?;
    assert_eq!(run.run.state(), RunState::Failed);
    let error = run
        .run
        .outcome
        .unwrap_or_default()
        .error
        .unwrap_or_default();
    assert!(error.message.contains("no_model"), "{error:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_names_everything_that_is_wrong_with_it_at_once() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let texts = CallsTarget {
        text: "x".repeat((1 << 20) + 1),
        dialect: 77,
        scope: Some(ToolScope {
            tool_ids: vec!["x".to_owned(); 501],
            ..ToolScope::default()
        }),
        ..CallsTarget::default()
    };
    let message = |text: &str| AgentTarget {
        profile_id: "weather_guide".to_owned(),
        input: Some(Input::UserMessage(text.to_owned())),
        conversation_id: "conv_a".to_owned(),
        ephemeral: true,
        ..AgentTarget::default()
    };
    for (request, wrong) in [
        (InvokeTextRequest::default(), &["target"][..]),
        (
            calls(texts),
            &["calls.text", "calls.scope.tool_ids", "calls.dialect"],
        ),
        (turn(message("")), &["agent.user_message"]),
        (
            turn(message(" ")),
            &["agent.ephemeral", "agent.user_message"],
        ),
    ] {
        let status = stack.gateway().invoke_text(request).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert_eq!(grpc_kit::reason(&status), Some(ErrorReason::InvalidFields));
        let named = grpc_kit::violations(&status).into_iter();
        let named: Vec<String> = named.map(|(field, _)| field).collect();
        assert_eq!(named, wrong);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workflow_names_every_mistake_with_its_place() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let definition = serde_json::json!({
        "name": "broken",
        "nodes": [
            { "id": "a", "type": "core:TextMerge" },
            { "id": "b", "type": "core:TextMerge" },
            { "id": "c", "type": "core:TextMergee" }
        ],
        "edges": [
            { "id": "1", "source": "a", "sourceHandle": "merged_text", "target": "b", "targetHandle": "text_inputs" },
            { "id": "2", "source": "b", "sourceHandle": "merged_text", "target": "a", "targetHandle": "text_inputs" },
            { "id": "3", "source": "a", "sourceHandle": "merged_text", "target": "ghost", "targetHandle": "x" }
        ],
        "interfaceInputs": {}, "interfaceOutputs": {}
    });
    let request = ValidateWorkflowRequest {
        definition_json: definition.to_string(),
        ..ValidateWorkflowRequest::default()
    };
    let found = stack
        .workflow()
        .validate_workflow(request)
        .await?
        .into_inner()
        .violations;
    let all = format!("{found:?}");
    for word in ["core:TextMerge", "ghost", "/nodes/2", "/edges/2"] {
        assert!(all.contains(word), "{word} is not in {all}");
    }
    Ok(())
}

fn observations(run: &Followed) -> Vec<String> {
    let texts = run.events.iter().filter_map(|event| match &event.kind {
        Some(Kind::Observation(observed)) => Some(observed.text.clone()),
        _ => None,
    });
    texts.collect()
}

fn settled(run: &Followed) -> (CallStatus, CallError) {
    let result = run.events.iter().find_map(|event| match &event.kind {
        Some(Kind::CallSettled(settled)) => settled.result.clone(),
        _ => None,
    });
    let result = result.unwrap_or_default();
    (result.status(), result.error.unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_that_mean_nothing_are_refused_before_anything_runs() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let mut request = model_text("Hello.");
    request.options = Some(RunOptions {
        durability: 9,
        ..RunOptions::default()
    });
    let status = stack.gateway().invoke_text(request).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(grpc_kit::violations(&status)[0].0, "options.durability");
    let request = ListToolsRequest {
        page_size: -1,
        ..ListToolsRequest::default()
    };
    let status = stack.registry().list_tools(request).await.unwrap_err();
    assert_eq!(grpc_kit::violations(&status)[0].0, "page_size");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_above_the_limit_of_messages_is_refused_with_details() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let request = model_text(&"x".repeat(4 << 20));
    let status = stack.gateway().invoke_text(request).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(grpc_kit::reason(&status), Some(ErrorReason::LimitExceeded));
    assert_eq!(grpc_kit::metadata(&status)["limit"], "message bytes");
    Ok(())
}

#[test]
fn the_wrong_settings_of_all_services_are_reported_together() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let environment = [
        ("TAVERN__SERVER__MAX_CALLS".to_owned(), "0"),
        ("TAVERN_GATEWAY__MAX_TEXT".to_owned(), "2MiB"),
        ("TAVERN_SANDBOX__LOWEST_ISOLATON".to_owned(), "full"),
        ("TAVERN_SANDBX__USE_CGROUPS".to_owned(), "false"),
        ("TAVERN_REGISTRY__DATA_DIR".to_owned(), "elsewhere"),
    ];
    let program = testkit::binary("tavern")?;
    let mut process = testkit::Process::start(
        "tavern",
        &program,
        &["serve"],
        &environment,
        directory.path(),
    )?;
    assert_eq!(process.wait()?.code(), Some(78), "{}", process.output());
    let output = process.output();
    for part in [
        "5 settings are wrong",
        "server.max_calls",
        "max_text",
        "use lowest_isolation",
        "use TAVERN_SANDBOX__USE_CGROUPS",
        "environment variable TAVERN_REGISTRY__DATA_DIR): remove it",
    ] {
        assert!(output.contains(part), "{part} is not in {output}");
    }
    Ok(())
}
