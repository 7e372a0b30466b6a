//! The double of tool-registry and tool-registry itself return the same answers.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use contracts::tavern::common::v1::{CallResult, CallStatus};
use contracts::tavern::registry::v1::{
    BatchGetToolsRequest, CallToolRequest, CancelCallRequest, StartCallRequest,
    call_service_client::CallServiceClient, call_tool_response::Record,
    tool_registry_service_client::ToolRegistryServiceClient,
};
use doubles::{Behaviour, TestRegistry};
use grpc_kit::{Outbound, Services};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tonic::Status;

/// A step of the table.
enum Step {
    /// Calls a tool under an effect id.
    Call(&'static str, &'static str, Value),
    /// Calls a tool that hangs, and returns when it was dispatched.
    Begin(&'static str, &'static str),
    /// Starts a call that hangs and continues by itself.
    Start(&'static str, &'static str),
    /// Lets the tools that hang end.
    Release,
    /// Cancels a call.
    Cancel(&'static str),
    /// Waits for the end of a call that began.
    End(&'static str),
    /// Requests tools by their ids.
    Tools(&'static [&'static str]),
}

/// A name, a step and its answer: the status of a call with its output or the message of its error, or the
/// reason of a refusal.
fn table() -> Vec<(&'static str, Step, &'static str)> {
    use Step::{Begin, Call, Cancel, End, Release, Start, Tools};
    let at = |place: &str| json!({"at": place});
    vec![
        (
            "a call",
            Call("e1", "Look", at("door")),
            "SUCCEEDED \"saw door\"",
        ),
        (
            "the same again",
            Call("e1", "Look", at("door")),
            "SUCCEEDED \"saw door\"",
        ),
        (
            "other arguments",
            Call("e1", "Look", at("wall")),
            "ERROR_REASON_REQUEST_ID_REUSED",
        ),
        (
            "another tool",
            Call("e1", "Fail", at("door")),
            "ERROR_REASON_REQUEST_ID_REUSED",
        ),
        (
            "a failure",
            Call("e2", "Fail", at("door")),
            "FAILED the disk is gone",
        ),
        (
            "the failure again",
            Call("e2", "Fail", at("door")),
            "FAILED the disk is gone",
        ),
        (
            "a tool that is lost",
            Call("e3", "Lose", at("door")),
            "IN_DOUBT",
        ),
        (
            "the lost one again",
            Call("e3", "Lose", at("door")),
            "IN_DOUBT",
        ),
        (
            "an unknown tool",
            Call("e4", "Nothing", at("door")),
            "REJECTED",
        ),
        ("one that hangs", Begin("e5", "Wait"), "begun"),
        ("it is joined", Begin("e5", "Wait"), "begun"),
        (
            "it is joined by another body",
            Call("e5", "Wait", at("wall")),
            "ERROR_REASON_REQUEST_ID_REUSED",
        ),
        (
            "a cancel of another",
            Cancel("e0"),
            "ERROR_REASON_CALL_NOT_FOUND",
        ),
        ("one to cancel", Begin("e6", "Wait"), "begun"),
        ("its cancel", Cancel("e6"), "accepted"),
        ("its end", End("e6"), "CANCELLED"),
        ("one without a caller", Start("e7", "Wait"), "started"),
        ("all may end", Release, "released"),
        ("the end of one", End("e5"), "SUCCEEDED \"waited\""),
        ("the end of the other", End("e5"), "SUCCEEDED \"waited\""),
        (
            "the tools",
            Tools(&["Look", "Peek", "Nothing", "Wait"]),
            "Look; Peek read_only; Wait parallel_safe; missing Nothing",
        ),
    ]
}

/// A registry, and the calls that began at it.
struct Asked {
    registry: TestRegistry,
    calls: CallServiceClient<Outbound>,
    tools: ToolRegistryServiceClient<Outbound>,
    begun: Vec<(&'static str, JoinHandle<String>)>,
}

fn registry() -> TestRegistry {
    let look = |arguments: &Value| json!(format!("saw {}", arguments["at"].as_str().unwrap()));
    TestRegistry::default()
        .tool("Look", &["at"], Behaviour::Gives(Arc::new(look)))
        .tool("Peek", &["at"], Behaviour::Fails("it is dark"))
        .read_only("Peek")
        .tool("Fail", &["at"], Behaviour::Fails("the disk is gone"))
        .tool("Lose", &["at"], Behaviour::Unknown)
        .tool("Wait", &["at"], Behaviour::Hangs)
        .parallel_safe("Wait")
}

fn request(effect: &str, tool: &str, arguments: &Value) -> CallToolRequest {
    CallToolRequest {
        effect_id: effect.to_owned(),
        tool_id: tool.to_owned(),
        arguments_json: arguments.to_string(),
        conversation_id: "c1".to_owned(),
        ..CallToolRequest::default()
    }
}

/// Carries a call out, and words its answer.
async fn answered(mut calls: CallServiceClient<Outbound>, request: CallToolRequest) -> String {
    let ended = async {
        let mut records = calls.call_tool(request).await?.into_inner();
        while let Some(record) = records.message().await? {
            if let Some(Record::Result(result)) = record.record {
                return Ok(worded(&result));
            }
        }
        Err(Status::internal("the stream ended without a result"))
    };
    ended.await.unwrap_or_else(|status| reason(&status))
}

fn reason(status: &Status) -> String {
    let reason = grpc_kit::reason(status);
    reason.map_or_else(
        || status.to_string(),
        |reason| reason.as_str_name().to_owned(),
    )
}

fn worded(result: &CallResult) -> String {
    let status = result.status();
    let mut words = vec![
        status
            .as_str_name()
            .trim_start_matches("CALL_STATUS_")
            .to_owned(),
    ];
    let error = result.error.as_ref().map(|error| error.message.clone());
    match status {
        CallStatus::Succeeded => words.push(result.output_json.clone()),
        CallStatus::Failed => words.extend(error),
        // The words of a refusal or a loss differ: only the registry knows the cause.
        _ => assert!(error.is_some(), "{result:?}"),
    }
    words.join(" ")
}

impl Asked {
    async fn of(registry: TestRegistry) -> Self {
        let nothing = grpc_kit::local(&Services::new());
        let transport = registry.connect(nothing).await;
        Self {
            registry,
            calls: CallServiceClient::new(transport.clone().outermost()),
            tools: ToolRegistryServiceClient::new(transport.outermost()),
            begun: Vec::new(),
        }
    }

    async fn answer(&mut self, step: Step) -> String {
        let hangs = json!({"at": "door"});
        match step {
            Step::Call(effect, tool, arguments) => {
                answered(self.calls.clone(), request(effect, tool, &arguments)).await
            }
            Step::Begin(effect, tool) => {
                let call = answered(self.calls.clone(), request(effect, tool, &hangs));
                self.begun.push((effect, tokio::spawn(call)));
                while !self
                    .registry
                    .dispatches()
                    .iter()
                    .any(|known| known == effect)
                {
                    tokio::task::yield_now().await;
                }
                "begun".to_owned()
            }
            Step::Start(effect, tool) => {
                let request = StartCallRequest {
                    effect_id: effect.to_owned(),
                    tool_id: tool.to_owned(),
                    arguments_json: hangs.to_string(),
                    conversation_id: "c1".to_owned(),
                    ..StartCallRequest::default()
                };
                let started = self.calls.start_call(request).await;
                started.map_or_else(|status| reason(&status), |_| "started".to_owned())
            }
            Step::Release => {
                self.registry.release("Wait", json!("waited"));
                "released".to_owned()
            }
            Step::Cancel(effect) => {
                let request = CancelCallRequest {
                    effect_id: effect.to_owned(),
                    reason: "enough".to_owned(),
                };
                let cancelled = self.calls.cancel_call(request).await;
                cancelled.map_or_else(|status| reason(&status), |_| "accepted".to_owned())
            }
            Step::End(effect) => {
                let place = self.begun.iter().position(|(known, _)| *known == effect);
                self.begun.remove(place.unwrap()).1.await.unwrap()
            }
            Step::Tools(ids) => self.described(ids).await,
        }
    }

    async fn described(&mut self, ids: &[&str]) -> String {
        let request = BatchGetToolsRequest {
            tool_ids: ids.iter().map(|id| (*id).to_owned()).collect(),
            ..BatchGetToolsRequest::default()
        };
        let answer = self
            .tools
            .batch_get_tools(request)
            .await
            .unwrap()
            .into_inner();
        let mut words = Vec::new();
        for tool in answer.tools {
            let schema: Value = serde_json::from_str(&tool.parameters_json).unwrap();
            assert_eq!(schema["required"], json!(["at"]));
            assert_eq!(tool.description, format!("The tool {}.", tool.tool_id));
            let flags = [
                (tool.read_only, "read_only"),
                (tool.parallel_safe, "parallel_safe"),
            ];
            let declared = flags
                .iter()
                .filter(|(is_so, _)| *is_so)
                .map(|(_, flag)| *flag);
            let declared: Vec<&str> = declared.collect();
            words.push([&[tool.tool_id.as_str()], &declared[..]].concat().join(" "));
        }
        words.extend(
            answer
                .missing_tool_ids
                .iter()
                .map(|id| format!("missing {id}")),
        );
        words.join("; ")
    }
}

async fn check(registry: TestRegistry) {
    let mut asked = Asked::of(registry).await;
    for (name, step, expected) in table() {
        assert_eq!(asked.answer(step).await, expected, "{name}");
    }
    let mut dispatched = asked.registry.dispatches();
    dispatched.sort();
    dispatched.dedup();
    assert_eq!(
        dispatched.len(),
        asked.registry.dispatches().len(),
        "each once"
    );
    assert_eq!(dispatched, ["e1", "e2", "e3", "e5", "e6", "e7"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_registry_answers_as_the_table_says() {
    check(registry()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn its_double_answers_as_the_table_says() {
    check(registry().double()).await;
}
