//! A chat completion as a turn of an agent.

use contracts::tavern::agent::v1::Sampling;
use contracts::tavern::common::v1::{ChatMessage, ChatRole};
use contracts::tavern::gateway::v1::{
    AgentTarget, InvokeTextRequest, agent_target, invoke_text_request,
};
use grpc_kit::Failure;
use http::{HeaderMap, HeaderName};
use serde::Deserialize;
use serde_json::{Map, Value};
use tonic::Status;

use super::unsupported;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// A client's request for a chat completion.
#[derive(Debug)]
pub(super) struct ChatRequest {
    /// The agent, as the client names it.
    pub(super) model: String,
    /// The options of an answer in chunks; `None` for an answer in one piece.
    pub(super) chunks: Option<Chunks>,
    pub(super) invoke: InvokeTextRequest,
}

/// The options of an answer in chunks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunks {
    /// Whether the tokens are counted at the end.
    pub(super) usage: bool,
}

/// The supported parameters, and all others; of these the ones that would change the answer are
/// refused.
#[derive(Deserialize)]
struct CompletionParameters {
    model: String,
    messages: Vec<Message>,
    #[serde(default)]
    stream: Option<bool>,
    #[serde(default)]
    stream_options: Option<StreamOptions>,
    #[serde(default)]
    temperature: Option<f64>,
    #[serde(default)]
    max_tokens: Option<u32>,
    #[serde(default)]
    max_completion_tokens: Option<u32>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

#[derive(Default, Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
}

#[derive(Deserialize)]
struct Message {
    role: String,
    #[serde(default)]
    content: Option<Content>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Deserialize)]
struct Part {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    text: String,
}

/// Reads a request. Clients send the whole conversation each time: the last message is the user's,
/// and the messages before it are history, which is data. The conversation is dropped with its
/// turn.
///
/// # Errors
/// Every invalid message, by its position, and every unsupported parameter, by its name.
pub(super) fn read(bytes: &[u8], headers: &HeaderMap) -> Result<ChatRequest, Status> {
    let completion: CompletionParameters = serde_json::from_slice(bytes).map_err(|error| {
        let problem = format!("is not a chat completion: {error}");
        Status::from(Failure::invalid_fields().violation("", problem))
    })?;
    let mut failure = Failure::invalid_fields();
    let mut messages = Vec::new();
    for (index, message) in completion.messages.into_iter().enumerate() {
        messages.extend(message.read(index, &mut failure));
    }
    unsupported::refuse(&completion.others, &mut failure);
    let sampling = Sampling {
        max_output_tokens: completion
            .max_completion_tokens
            .or(completion.max_tokens)
            .unwrap_or_default(),
        temperature: completion.temperature,
    };
    if completion
        .temperature
        .is_some_and(|wanted| !(0.0..=2.0).contains(&wanted))
    {
        failure.add_violation("temperature", "must be between 0 and 2");
    }
    let last = messages.pop_if(|last| last.role() == ChatRole::User);
    if last.is_none() && failure.is_empty() {
        failure.add_violation("messages", "must end with a message of the user");
    }
    failure.refuse_if_any()?;
    let agent = AgentTarget {
        profile_id: completion.model.clone(),
        input: last.map(|last| agent_target::Input::UserMessage(last.text)),
        history: messages,
        ephemeral: true,
        sampling: Some(sampling),
        ..AgentTarget::default()
    };
    let request_id = headers
        .get(IDEMPOTENCY_KEY)
        .and_then(|key| key.to_str().ok());
    let options = completion.stream_options.unwrap_or_default();
    Ok(ChatRequest {
        model: completion.model,
        chunks: completion.stream.unwrap_or_default().then_some(Chunks {
            usage: options.include_usage,
        }),
        invoke: InvokeTextRequest {
            request_id: request_id.unwrap_or_default().to_owned(),
            target: Some(invoke_text_request::Target::Agent(agent)),
            options: None,
        },
    })
}

impl Message {
    /// Reads a message; `None` if it has no text or is invalid.
    fn read(self, index: usize, failure: &mut Failure) -> Option<ChatMessage> {
        let role = match self.role.as_str() {
            "system" | "developer" => ChatRole::System,
            "user" => ChatRole::User,
            "assistant" => ChatRole::Assistant,
            _ => {
                let problem = "must be system, developer, user or assistant: tools run here";
                failure.add_violation(format!("messages[{index}].role"), problem);
                return None;
            }
        };
        let text = match self.content? {
            Content::Text(text) => text,
            Content::Parts(parts) => {
                if let Some(part) = parts.iter().position(|part| part.kind != "text") {
                    let place = format!("messages[{index}].content[{part}].type");
                    failure.add_violation(place, "must be text");
                }
                parts.into_iter().map(|part| part.text).collect()
            }
        };
        (!text.is_empty()).then(|| ChatMessage {
            role: role.into(),
            text,
            ..ChatMessage::default()
        })
    }
}
