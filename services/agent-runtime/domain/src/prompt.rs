//! Assembles a request to the model.
//!
//! The system message holds the agent's instructions and the list of its tools, followed by the
//! earlier turns and the present one as they are. The same history makes the same bytes, so that
//! endpoints can cache them and a replay can be compared by [`Prompt::digest`].

use sha2::{Digest, Sha256};

use super::message::{ChatMessage, Role, TurnMessage};

/// A request to a model, as messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// The messages, the oldest first.
    pub messages: Vec<ChatMessage>,
    /// The number of the oldest turns that were left out, as the history was too long.
    pub turns_left_out: usize,
}

/// Assembles the messages, leaving out the oldest turns beyond `history_bytes`.
///
/// The present turn is never cut: its length is bounded by its budgets.
pub fn assemble(
    system_prompt: &str,
    tools: &str,
    earlier: &[Vec<TurnMessage>],
    present: &[TurnMessage],
    history_bytes: usize,
) -> Prompt {
    let mut room = history_bytes;
    let mut turns_left_out = earlier.len();
    while turns_left_out > 0 {
        let bytes: usize = earlier[turns_left_out - 1]
            .iter()
            .map(|said| said.message.bytes())
            .sum();
        if bytes > room {
            break;
        }
        room -= bytes;
        turns_left_out -= 1;
    }
    let system = [system_prompt, tools]
        .into_iter()
        .filter(|part| !part.is_empty());
    let system = system.collect::<Vec<_>>().join("\n\n");
    let mut messages = Vec::new();
    if !system.is_empty() {
        messages.push(ChatMessage::new(Role::System, system));
    }
    let said = earlier[turns_left_out..].iter().flatten().chain(present);
    messages.extend(said.map(|said| said.message.clone()));
    Prompt {
        messages,
        turns_left_out,
    }
}

impl Prompt {
    /// Returns the SHA-256 of the messages in hexadecimal digits.
    pub fn digest(&self) -> String {
        let mut hasher = Sha256::new();
        for message in &self.messages {
            // Lengths keep one message from running into the next.
            let mut part = |text: &str| {
                hasher.update(u64::try_from(text.len()).unwrap_or(u64::MAX).to_be_bytes());
                hasher.update(text);
            };
            part(message.role.as_str());
            part(&message.text);
            for call in &message.calls {
                part(&call.name);
                part(&call.arguments_json);
            }
        }
        hex::encode(hasher.finalize())
    }

    /// Returns the number of bytes of the messages.
    pub fn bytes(&self) -> usize {
        self.messages.iter().map(ChatMessage::bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use core_types::Timestamp;

    use super::*;

    fn said(role: Role, text: &str) -> TurnMessage {
        ChatMessage::new(role, text).at(Timestamp::default())
    }

    fn turn(text: &str) -> Vec<TurnMessage> {
        vec![said(Role::User, text), said(Role::Assistant, text)]
    }

    #[test]
    fn instructions_and_tools_come_first_and_the_turns_follow_in_order() {
        let prompt = assemble(
            "You are Ada.",
            "Tools: none.",
            &[turn("one")],
            &turn("two"),
            1_000,
        );
        let flat: Vec<_> = prompt
            .messages
            .iter()
            .map(|message| (message.role.as_str(), message.text.as_str()))
            .collect();
        assert_eq!(
            flat,
            [
                ("system", "You are Ada.\n\nTools: none."),
                ("user", "one"),
                ("assistant", "one"),
                ("user", "two"),
                ("assistant", "two"),
            ]
        );
    }

    #[test]
    fn the_oldest_turns_are_left_out_whole_and_the_present_one_never() {
        let earlier = [turn("aaaaaaaaaa"), turn("bbbb"), turn("cc")];
        let prompt = assemble("", "", &earlier, &turn("a long present turn"), 13);
        assert_eq!(prompt.turns_left_out, 1);
        assert_eq!(prompt.messages[0].text, "bbbb");
        let none = assemble("", "", &earlier, &turn("a long present turn"), 0);
        assert_eq!((none.turns_left_out, none.messages.len()), (3, 2));
    }

    #[test]
    fn the_digest_tells_messages_apart_that_join_to_the_same_text() {
        let one = assemble(
            "",
            "",
            &[],
            &[said(Role::User, "ab"), said(Role::User, "c")],
            0,
        );
        let other = assemble(
            "",
            "",
            &[],
            &[said(Role::User, "a"), said(Role::User, "bc")],
            0,
        );
        assert_eq!(one.digest(), one.clone().digest());
        assert_ne!(one.digest(), other.digest());
    }
}
