//! A client of A2A, and agents for it.

use std::path::Path;

use anyhow::{Context, bail, ensure};
use contracts::lf::a2a::v1::{
    CancelTaskRequest, GetTaskRequest, Message, Part, Role, SendMessageConfiguration,
    SendMessageRequest, StreamResponse, SubscribeToTaskRequest, Task, TaskState,
    a2a_service_client::A2aServiceClient, part::Content, send_message_response,
    stream_response::Payload,
};
use grpc_kit::Outbound;
use serde_json::{Value, json};
use testkit::{Stack, exchange};
use tonic::{Code, Request, Status, Streaming};
use tonic_types::StatusExt;

const ASK: &str = "<ACTION><ui:RequestUserInteraction><prompt>Which herb?</prompt>\
                   <options>sage</options><options>moonmoss</options>\
                   </ui:RequestUserInteraction></ACTION>";

/// Writes agents: the first reads the clock, the second asks a question, the third is slow, and the
/// only call of the last needs an approval.
pub(crate) fn prepare(deploy: &Path) -> anyhow::Result<()> {
    for directory in ["agents", "models", "plugins", "workflows"] {
        std::fs::create_dir(deploy.join(directory))?;
    }
    let look = "Let me look.\n<ACTION><system:get_current_time/></ACTION>";
    let write = "<ACTION><FileOperator.WriteFile><filePath>a.txt</filePath><content>x</content>\
                 </FileOperator.WriteFile></ACTION>";
    let approvals = json!([{"id": "files", "tools": ["FileOperator.*"], "action": "ask"}]);
    let mut models = String::new();
    for (id, tool, rules, turns) in [
        (
            "clock",
            "system:get_current_time",
            json!([]),
            json!([{"answer": {"text": look, "chunk": 5}},
                   {"answer": {"text": "It is late, and the inn is closed.", "chunk": 7}}]),
        ),
        (
            "herbalist",
            "ui:RequestUserInteraction",
            json!([]),
            json!([{"answer": {"text": ASK}},
                   {"expect": {"last_contains": ["\"answer\":\"sage\""]},
                    "answer": {"text": "I fetch it."}}]),
        ),
        (
            "sloth",
            "system:get_current_time",
            json!([]),
            json!([{"answer": {"text": "Hm ...", "chunk": 1, "delay": "20s"}}]),
        ),
        (
            "scribe",
            "FileOperator.WriteFile",
            approvals,
            json!([{"answer": {"text": write}}, {"answer": {"text": "Very well."}}]),
        ),
    ] {
        let profile = json!({
            "id": id,
            "name": format!("The {id}"),
            "description": "Helps.",
            "version": "2.1",
            "tool_ids_inventory": [tool],
            "custom_metadata":
                {"tavern": {"model": id, "interaction": "wait", "approvals": rules}},
        });
        std::fs::write(
            deploy.join(format!("agents/{id}.json")),
            profile.to_string(),
        )?;
        // A second message begins again.
        let script = json!({"turns": turns, "otherwise": {"answer": {"text": "Again?"}}});
        std::fs::write(deploy.join(format!("models/{id}.json")), script.to_string())?;
        models += &format!("[models.{id}]\nprovider = \"scripted\"\nscript = \"{id}.json\"\n");
    }
    Ok(std::fs::write(deploy.join("agent-runtime.toml"), models)?)
}

/// A client of one agent.
pub(super) struct Client {
    pub(super) a2a: A2aServiceClient<Outbound>,
    pub(super) tenant: &'static str,
}

/// Names the version of the protocol, as every client of it does.
pub(super) fn v1<T>(message: T) -> anyhow::Result<Request<T>> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("a2a-version", "1.0".parse()?);
    Ok(request)
}

pub(super) fn text(text: &str) -> Part {
    Part {
        content: Some(Content::Text(text.to_owned())),
        ..Part::default()
    }
}

impl Client {
    /// A client that sends the key of the stack.
    pub(super) fn of(stack: &Stack, tenant: &'static str) -> Self {
        Self::with(stack, stack.key(), tenant)
    }

    /// A client that sends `key`, or no credential.
    pub(super) fn with(stack: &Stack, key: Option<&str>, tenant: &'static str) -> Self {
        Self {
            a2a: A2aServiceClient::new(stack.transport_with(key).outermost()),
            tenant,
        }
    }

    /// A message that waits for the end, `id` being its own name and the first word of its text.
    pub(super) fn message(&self, id: &str, task_id: &str) -> SendMessageRequest {
        SendMessageRequest {
            tenant: self.tenant.to_owned(),
            message: Some(Message {
                message_id: id.to_owned(),
                task_id: task_id.to_owned(),
                role: Role::User.into(),
                parts: vec![text(id)],
                ..Message::default()
            }),
            ..SendMessageRequest::default()
        }
    }

    pub(super) async fn send(&self, request: SendMessageRequest) -> anyhow::Result<Task> {
        let sent = self.a2a.clone().send_message(v1(request)?).await?;
        match sent.into_inner().payload {
            Some(send_message_response::Payload::Task(task)) => Ok(task),
            other => bail!("{other:?} is no task"),
        }
    }

    /// Sends a message without waiting for its task.
    pub(super) async fn leave(&self, mut request: SendMessageRequest) -> anyhow::Result<Task> {
        request.configuration = Some(SendMessageConfiguration {
            return_immediately: true,
            ..SendMessageConfiguration::default()
        });
        self.send(request).await
    }

    pub(super) async fn get(&self, id: &str) -> anyhow::Result<Task> {
        let request = GetTaskRequest {
            tenant: self.tenant.to_owned(),
            id: id.to_owned(),
            history_length: None,
        };
        Ok(self.a2a.clone().get_task(v1(request)?).await?.into_inner())
    }

    pub(super) async fn cancel(&self, id: &str) -> anyhow::Result<Task> {
        let request = CancelTaskRequest {
            tenant: self.tenant.to_owned(),
            id: id.to_owned(),
            metadata: None,
        };
        let cancelled = self.a2a.clone().cancel_task(v1(request)?).await?;
        Ok(cancelled.into_inner())
    }

    pub(super) async fn subscribe(&self, id: &str) -> anyhow::Result<Streaming<StreamResponse>> {
        let request = SubscribeToTaskRequest {
            tenant: self.tenant.to_owned(),
            id: id.to_owned(),
        };
        let followed = self.a2a.clone().subscribe_to_task(v1(request)?).await?;
        Ok(followed.into_inner())
    }
}

pub(super) fn state(task: &Task) -> TaskState {
    task.status
        .as_ref()
        .map_or(TaskState::Unspecified, |status| status.state())
}

pub(super) fn text_of(parts: &[Part]) -> String {
    let texts = parts.iter().map(|part| match &part.content {
        Some(Content::Text(text)) => text.as_str(),
        _ => "",
    });
    texts.collect()
}

/// Returns the reason of a refusal: the reason of A2A, or the invalid field.
pub(super) fn refused<T: std::fmt::Debug>(
    answer: anyhow::Result<T>,
) -> anyhow::Result<(Code, String)> {
    let error = answer.err().context("it is refused")?;
    let status = error.downcast_ref::<Status>().context("by a status")?;
    let details = status.get_error_details();
    let info = details.error_info().context("with a reason")?;
    if info.domain == "a2a-protocol.org" {
        return Ok((status.code(), info.reason.clone()));
    }
    let fields = details
        .bad_request()
        .map(|bad| bad.field_violations.clone());
    let field = fields.unwrap_or_default().into_iter().next();
    Ok((
        status.code(),
        field.map_or(info.reason.clone(), |field| field.field),
    ))
}

pub(super) fn a2a(code: Code, reason: &str) -> (Code, String) {
    (code, reason.to_owned())
}

/// The content of a stream as a client puts it together: the states, and the answer.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) states: Vec<TaskState>,
    pub(super) answer: String,
    pub(super) pieces: usize,
    pub(super) is_complete: bool,
}

impl Seen {
    pub(super) async fn all(mut stream: Streaming<StreamResponse>) -> anyhow::Result<(Task, Self)> {
        let first = stream.message().await?.context("a stream begins")?;
        let Some(Payload::Task(task)) = first.payload else {
            bail!("the stream begins with {first:?}");
        };
        let mut seen = Self::default();
        while let Some(next) = stream.message().await? {
            match next.payload {
                Some(Payload::StatusUpdate(update)) => {
                    ensure!(update.task_id == task.id && update.context_id == task.context_id);
                    let status = update.status.context("a status")?;
                    seen.states.push(status.state());
                }
                Some(Payload::ArtifactUpdate(update)) => {
                    let artifact = update.artifact.context("an artifact")?;
                    ensure!(artifact.artifact_id == "answer" && !seen.is_complete);
                    if !update.append {
                        seen.answer.clear();
                    }
                    seen.answer += &text_of(&artifact.parts);
                    seen.pieces += 1;
                    seen.is_complete = update.last_chunk;
                }
                other => bail!("{other:?} in a stream"),
            }
        }
        Ok((task, seen))
    }
}

/// Sends JSON over plain HTTP, and returns the status line and the body.
pub(super) async fn post(
    stack: &Stack,
    method: &str,
    body: &Value,
) -> anyhow::Result<(String, Value)> {
    let head = format!(
        "POST /lf.a2a.v1.A2AService/{method}\r\na2a-version: 1.0\r\n\
         content-type: application/json\r\n"
    );
    let body = body.to_string();
    let answer = exchange(&stack.address(), &head, body.as_bytes(), |_| false).await?;
    let (head, body) = answer.split_once("\r\n\r\n").context("an answer")?;
    let line = head.lines().next().unwrap_or_default().to_owned();
    Ok((line, serde_json::from_str(body)?))
}
