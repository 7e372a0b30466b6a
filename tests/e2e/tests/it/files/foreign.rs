//! Conversations of others, by every way to their files and interpreters.

use anyhow::{Context, ensure};
use contracts::access::Role;
use contracts::tavern::common::v1::{CallStatus, ErrorReason, RunState};
use contracts::tavern::gateway::v1::gateway_service_client::GatewayServiceClient;
use contracts::tavern::gateway::v1::{AgentTarget, agent_target::Input};
use contracts::tavern::registry::v1::call_service_client::CallServiceClient;
use contracts::tavern::registry::v1::call_tool_response::Record;
use contracts::tavern::registry::v1::workspace_service_client::WorkspaceServiceClient;
use contracts::tavern::registry::v1::{
    CallToolRequest, DeleteFileRequest, ListFilesRequest, MoveFileRequest, ReadFileRequest,
    StatFileRequest, WatchFilesRequest, WriteFileHeader, WriteFileRequest,
    write_file_request::Part,
};
use contracts::tavern::sandbox::v1::session_service_client::SessionServiceClient;
use contracts::tavern::sandbox::v1::{
    DeleteSessionRequest, GetSessionRequest, InterruptCellRequest, ListSessionsRequest,
    RunCellRequest,
};
use grpc_kit::Transport;
use serde_json::json;
use testkit::{Stack, invoke};
use tonic::{Code, Status};

use super::others::key;
use crate::text::turn;

/// The rounds over all ways; each makes some 25 calls.
const ROUNDS: usize = 40;

/// A conversation with files and an interpreter, and one that has only begun.
const TALK: &str = "conv_0123456789abcdef0123456789abcdef";
const BEGUN: &str = "conv_fedcba9876543210fedcba9876543210";

/// Calls every method of files, and returns the refusals.
async fn refusals(transport: &Transport, conversation: &str) -> anyhow::Result<Vec<Status>> {
    let mut files = WorkspaceServiceClient::new(transport.clone().outermost());
    let (conversation_id, path) = (conversation.to_owned(), "a.txt".to_owned());
    let header = Part::Header(WriteFileHeader {
        conversation_id: conversation_id.clone(),
        path: path.clone(),
        ..WriteFileHeader::default()
    });
    let write = tokio_stream::iter([WriteFileRequest { part: Some(header) }]);
    let list = ListFilesRequest {
        conversation_id: conversation_id.clone(),
        ..ListFilesRequest::default()
    };
    let stat = StatFileRequest {
        conversation_id: conversation_id.clone(),
        path: path.clone(),
    };
    let read = ReadFileRequest {
        conversation_id: conversation_id.clone(),
        path: path.clone(),
        ..ReadFileRequest::default()
    };
    let moved = MoveFileRequest {
        conversation_id: conversation_id.clone(),
        path: path.clone(),
        new_path: "b.txt".to_owned(),
        etag: String::new(),
    };
    let delete = DeleteFileRequest {
        conversation_id: conversation_id.clone(),
        path,
        etag: String::new(),
    };
    let watch = WatchFilesRequest { conversation_id };
    let all = [
        files.list_files(list).await.map(drop),
        files.stat_file(stat).await.map(drop),
        files.read_file(read).await.map(drop),
        files.move_file(moved).await.map(drop),
        files.delete_file(delete).await.map(drop),
        files.watch_files(watch).await.map(drop),
        files.write_file(write).await.map(drop),
    ];
    all.into_iter()
        .map(|answer| answer.err().context("a foreign conversation was reached"))
        .collect()
}

/// Calls the tools that work on files, and returns the codes of their errors.
async fn codes(transport: &Transport, conversation: &str) -> anyhow::Result<Vec<String>> {
    let mut calls = CallServiceClient::new(transport.clone().outermost());
    let mut codes = Vec::new();
    for (tool, arguments) in [
        (
            "CodeInterpreter:run_cell",
            json!({"language": "python", "code": "1"}),
        ),
        (
            "CodeInterpreter:execute",
            json!({"language": "python", "code": "1"}),
        ),
        ("FileOperator.ListFiles", json!({})),
        ("FileOperator.ReadFile", json!({"filePath": "a.txt"})),
        (
            "FileOperator.WriteFile",
            json!({"filePath": "a.txt", "content": "evil"}),
        ),
    ] {
        let request = CallToolRequest {
            tool_id: tool.to_owned(),
            arguments_json: arguments.to_string(),
            conversation_id: conversation.to_owned(),
            ..CallToolRequest::default()
        };
        // A conversation that has begun is out of reach before the call, its files within it.
        let answered = async {
            let mut answers = calls.call_tool(request).await?.into_inner();
            while let Some(answer) = answers.message().await? {
                if let Some(Record::Result(result)) = answer.record {
                    return Ok(result);
                }
            }
            Err(Status::internal("the call has no result"))
        };
        match answered.await {
            Ok(result) => {
                ensure!(result.status() != CallStatus::Succeeded, "{result:?}");
                codes.push(result.error.context("it has an error")?.code);
            }
            Err(refused) => {
                let reason = grpc_kit::reason(&refused);
                ensure!(
                    reason == Some(ErrorReason::ConversationNotFound),
                    "{refused:?}"
                );
                codes.push("no_such_conversation".to_owned());
            }
        }
    }
    Ok(codes)
}

/// Calls every method of a session, and returns the refusals.
async fn of_session(transport: &Transport, session: &str) -> anyhow::Result<Vec<Status>> {
    let mut sessions = SessionServiceClient::new(transport.clone().outermost());
    let (session_id, caller_id) = (session.to_owned(), TALK.to_owned());
    let get = GetSessionRequest {
        session_id: session_id.clone(),
        caller_id: caller_id.clone(),
    };
    let interrupt = InterruptCellRequest {
        session_id: session_id.clone(),
        caller_id: caller_id.clone(),
        grace: None,
    };
    let run = RunCellRequest {
        session_id: session_id.clone(),
        caller_id: caller_id.clone(),
        source_text: "1".to_owned(),
        ..RunCellRequest::default()
    };
    let delete = DeleteSessionRequest {
        session_id,
        caller_id,
    };
    let all = [
        sessions.get_session(get).await.map(drop),
        sessions.interrupt_cell(interrupt).await.map(drop),
        sessions.run_cell(run).await.map(drop),
        sessions.delete_session(delete).await.map(drop),
    ];
    all.into_iter()
        .map(|answer| answer.err().context("a foreign session was reached"))
        .collect()
}

/// Returns the code and the words of a refusal, without the id.
fn words(status: &Status, id: &str) -> (Code, String) {
    (status.code(), status.message().replace(id, "…"))
}

/// Begins both conversations.
async fn begin(ada: &Transport) -> anyhow::Result<()> {
    let gateway = GatewayServiceClient::new(ada.clone().outermost());
    for (conversation, text) in [
        (
            TALK,
            "<ACTION><CodeInterpreter:run_cell><language>python</language><code>open('a.txt', 'w').write('ada')</code></CodeInterpreter:run_cell></ACTION>",
        ),
        (BEGUN, "Hello."),
    ] {
        let request = turn(AgentTarget {
            profile_id: "analyst".to_owned(),
            conversation_id: conversation.to_owned(),
            input: Some(Input::ModelText(text.to_owned())),
            ..AgentTarget::default()
        });
        let run = invoke(&gateway, request).await.context(conversation)?;
        ensure!(run.run.state() == RunState::Succeeded, "{run:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_calls_find_nothing_of_a_foreign_conversation() -> anyhow::Result<()> {
    let stack = Stack::builder().with_keys().start().await?;
    stack.create_tenant("acme", 1, Vec::new()).await?;
    let ada = key(&stack, "", "ada", Role::Invoker).await?;
    let ada = stack.transport_with(Some(&ada));
    begin(&ada).await?;
    let mut sessions = SessionServiceClient::new(ada.clone().outermost());
    let listed = sessions
        .list_sessions(ListSessionsRequest::default())
        .await
        .context("sessions")?;
    let session = listed
        .into_inner()
        .sessions
        .pop()
        .context("a session")?
        .session_id;
    let mut calls = 0;
    for (tenant, name) in [("", "bob"), ("acme", "bob")] {
        let other = key(&stack, tenant, name, Role::Invoker).await?;
        let other = stack.transport_with(Some(&other));
        for round in 0..ROUNDS / 2 {
            for refused in of_session(&other, &session).await? {
                let unknown = of_session(&other, "sess_none").await?;
                ensure!(words(&refused, &session) == words(&unknown[0], "sess_none"));
                calls += 1;
            }
            // In another tenant the name is that of another conversation.
            if tenant == "acme" {
                continue;
            }
            let mut files = WorkspaceServiceClient::new(other.clone().outermost());
            let none = ListFilesRequest {
                conversation_id: format!("none-{round}"),
                ..ListFilesRequest::default()
            };
            let unknown = files
                .list_files(none)
                .await
                .err()
                .context("it is unknown")?;
            for conversation in [TALK, BEGUN] {
                for refused in refusals(&other, conversation).await? {
                    ensure!(
                        words(&refused, conversation) == words(&unknown, "none-"),
                        "{refused:?}"
                    );
                    calls += 1;
                }
                for code in codes(&other, conversation).await? {
                    ensure!(code == "no_such_conversation", "{conversation}: {code}");
                    calls += 1;
                }
            }
        }
    }
    ensure!(calls >= 500, "{calls}");
    let mut files = WorkspaceServiceClient::new(ada.outermost());
    for (conversation, count) in [(TALK, 1), (BEGUN, 0)] {
        let list = ListFilesRequest {
            conversation_id: conversation.to_owned(),
            ..ListFilesRequest::default()
        };
        let listed = files.list_files(list).await;
        let listed = listed.context(conversation)?.into_inner().files;
        ensure!(listed.len() == count, "{conversation}: {listed:?}");
    }
    Ok(())
}
