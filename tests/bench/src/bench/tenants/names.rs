//! The time until a name of another tenant is not found, beside that of a name which nothing has.

use std::time::Instant;

use anyhow::ensure;
use contracts::access::Role;
use contracts::tavern::agent::v1::{
    AppendMessagesRequest, GetConversationRequest, GetProfileRequest, PutProfileRequest,
    conversation_service_client::ConversationServiceClient,
    profile_service_client::ProfileServiceClient,
};
use contracts::tavern::common::v1::{ChatMessage, ChatRole};
use contracts::tavern::registry::v1::{
    CallToolRequest, GetCallRequest, call_service_client::CallServiceClient,
};
use contracts::tavern::run::v1::{GetRunRequest, run_service_client::RunServiceClient};
use contracts::tavern::workflow::v1::{
    GetWorkflowRequest, workflow_service_client::WorkflowServiceClient,
};
use futures::future::BoxFuture;
use grpc_kit::Transport;
use testkit::Stack;
use tonic::{Code, Status};

use super::WORKFLOW;
use crate::harness::Effort;
use crate::series::Series;
use crate::table::Figure;

/// The most that the medians may differ, in seconds.
const MOST: f64 = 50e-6;

/// A look-up by a name.
type LookUp = fn(Transport, String) -> BoxFuture<'static, Result<(), Status>>;

macro_rules! look_up {
    ($client:ident.$method:ident($request:ident { $field:ident $(, $other:ident: $value:expr)? })) => {
        |transport, name| {
            Box::pin(async move {
                let mut client = $client::new(transport.outermost());
                let request = $request {
                    $field: name,
                    $($other: $value,)?
                };
                client.$method(request).await.map(drop)
            })
        }
    };
}

pub(super) async fn run(effort: &Effort) -> anyhow::Result<Vec<Figure>> {
    let stack = Stack::builder().with_keys().start().await?;
    for tenant in ["acme", "other"] {
        stack.create_tenant(tenant, 1, Vec::new()).await?;
    }
    let owner = stack
        .transport_of_principal("acme", "bob", Role::Admin)
        .await?;
    let stranger = stack
        .transport_of_principal("other", "eve", Role::Admin)
        .await?;
    let run = things(&owner).await?;
    let missing_run = "flow_01a21cc6b4e8701f9f7c4de8b790a0d9".to_owned();
    let named = |name: &str| (name.to_owned(), "x".repeat(name.len()));
    let look_ups: [(&str, LookUp, (String, String)); 5] = [
        (
            "run",
            look_up!(RunServiceClient.get_run(GetRunRequest { run_id })),
            (run, missing_run),
        ),
        (
            "call",
            look_up!(CallServiceClient.get_call(GetCallRequest { effect_id })),
            named("effect"),
        ),
        (
            "workflow",
            look_up!(WorkflowServiceClient.get_workflow(GetWorkflowRequest { workflow_id })),
            named(WORKFLOW),
        ),
        (
            "profile",
            look_up!(ProfileServiceClient.get_profile(GetProfileRequest {
                profile_id,
                revision: 0
            })),
            named("writer"),
        ),
        (
            "conversation",
            look_up!(
                ConversationServiceClient
                    .get_conversation(GetConversationRequest { conversation_id })
            ),
            named("talk"),
        ),
    ];
    let mut figures = Vec::new();
    for (thing, look_up, (foreign, missing)) in look_ups {
        look_up(owner.clone(), foreign.clone()).await?;
        // In turn, so that both meet the same minutes of the machine.
        let (mut of_foreign, mut of_missing) = (Vec::new(), Vec::new());
        for _ in 0..effort.times(1_000) {
            for (name, seconds) in [(&foreign, &mut of_foreign), (&missing, &mut of_missing)] {
                let begin = Instant::now();
                let answer = look_up(stranger.clone(), name.clone()).await;
                seconds.push(begin.elapsed().as_secs_f64());
                let code = answer.err().map(|status| status.code());
                ensure!(
                    code == Some(Code::NotFound),
                    "{code:?} instead of NOT_FOUND"
                );
            }
        }
        let floor = Series::seconds(of_missing);
        let goal = floor.median() + MOST;
        let figure = Figure::new(
            format!("a {thing} of another tenant is not found"),
            Series::seconds(of_foreign),
        );
        figures.push(figure.floor("one that is nowhere", floor).goal(goal));
    }
    Ok(figures)
}

/// Makes one thing of each kind, and returns the id of the run.
async fn things(owner: &Transport) -> anyhow::Result<String> {
    super::put_workflow(owner).await?;
    let profile = r#"{"id": "writer", "name": "Writer", "version": "1.0.0", "schema_version": "1.0",
        "description": "One."}"#;
    let put = PutProfileRequest {
        profile_json: profile.to_owned(),
        ..PutProfileRequest::default()
    };
    ProfileServiceClient::new(owner.outermost())
        .put_profile(put)
        .await?;
    let append = AppendMessagesRequest {
        conversation_id: "talk".to_owned(),
        messages: vec![ChatMessage {
            role: ChatRole::User.into(),
            text: "Hello.".to_owned(),
            ..ChatMessage::default()
        }],
        ..AppendMessagesRequest::default()
    };
    ConversationServiceClient::new(owner.outermost())
        .append_messages(append)
        .await?;
    let call = CallToolRequest {
        tool_id: format!("workflow:{WORKFLOW}"),
        arguments_json: "{}".to_owned(),
        effect_id: "effect".to_owned(),
        ..CallToolRequest::default()
    };
    let mut calls = CallServiceClient::new(owner.outermost());
    let mut answers = calls.call_tool(call).await?.into_inner();
    while answers.message().await?.is_some() {}
    Ok(super::start(owner).await?)
}
