//! Chat messages as messages of the contract, and back.

use contracts::tavern::common::v1 as common;

use crate::domain::message::{ChatMessage, Role};

/// Writes the author of a message.
pub(crate) fn role_to_proto(role: Role) -> common::ChatRole {
    match role {
        Role::System => common::ChatRole::System,
        Role::User => common::ChatRole::User,
        Role::Assistant => common::ChatRole::Assistant,
    }
}

/// Writes a message.
pub(crate) fn message_to_proto(message: &ChatMessage) -> common::ChatMessage {
    common::ChatMessage {
        role: role_to_proto(message.role).into(),
        text: message.text.clone(),
    }
}

/// Reads a message; none if its author is missing.
pub(crate) fn message_from_proto(message: common::ChatMessage) -> Option<ChatMessage> {
    let role = match message.role() {
        common::ChatRole::System => Role::System,
        common::ChatRole::User => Role::User,
        common::ChatRole::Assistant => Role::Assistant,
        common::ChatRole::Unspecified => return None,
    };
    Some(ChatMessage::new(role, message.text))
}
