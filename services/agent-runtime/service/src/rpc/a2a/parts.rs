//! The contents of messages (rule G904).

use contracts::lf::a2a::v1::{Message, Part, Role, part::Content};
use grpc_kit::Failure;
use serde_json::Value;
use tonic::Status;

use super::{failure::content_not_supported, value};

/// The most parts of a message.
const MAX_PARTS: usize = 100;

/// The content of a message.
#[derive(Debug, PartialEq)]
pub(super) struct MessageContent {
    /// The whole content as text; data is JSON there.
    pub(super) text: String,
    /// The data, if there is one part and it holds data.
    pub(super) data: Option<Value>,
}

impl MessageContent {
    /// Returns the content as the answer to a question, in JSON.
    pub(super) fn answer_json(&self) -> String {
        let text = || Value::String(self.text.clone());
        self.data.clone().unwrap_or_else(text).to_string()
    }
}

/// Reads the parts of a message.
///
/// # Errors
/// CONTENT_TYPE_NOT_SUPPORTED for a file, else INVALID_FIELDS.
pub(super) fn read(parts: &[Part]) -> Result<MessageContent, Status> {
    let mut failure = Failure::invalid_fields();
    if parts.is_empty() || parts.len() > MAX_PARTS {
        let problem = format!("has {} parts; 1 to {MAX_PARTS} may be", parts.len());
        failure.add_violation("message.parts", problem);
        return Err(failure.into());
    }
    let (mut texts, mut data) = (Vec::new(), None);
    for (index, part) in parts.iter().enumerate() {
        let place = format!("message.parts[{index}]");
        match &part.content {
            Some(Content::Text(text)) => texts.push(text.clone()),
            Some(Content::Data(given)) => match value::to_json(given) {
                Some(given) => {
                    texts.push(given.to_string());
                    data = Some(given);
                }
                None => failure.add_violation(place, "holds a number that JSON does not have"),
            },
            Some(Content::Raw(_)) => return Err(content_not_supported(&place, "file")),
            Some(Content::Url(_)) => return Err(content_not_supported(&place, "link to a file")),
            None => failure.add_violation(place, "is empty"),
        }
    }
    failure.refuse_if_any()?;
    Ok(MessageContent {
        text: texts.join("\n\n"),
        data: data.filter(|_| parts.len() == 1),
    })
}

/// Makes a part of text.
pub(super) fn text(text: impl Into<String>) -> Part {
    Part {
        content: Some(Content::Text(text.into())),
        media_type: "text/plain".to_owned(),
        ..Part::default()
    }
}

/// Makes a part of data.
pub(super) fn data(data: &Value) -> Part {
    Part {
        content: Some(Content::Data(value::from_json(data))),
        media_type: "application/json".to_owned(),
        ..Part::default()
    }
}

/// Makes a message of a task.
pub(super) fn message(role: Role, message_id: String, parts: Vec<Part>) -> Message {
    Message {
        message_id,
        role: role.into(),
        parts,
        ..Message::default()
    }
}
