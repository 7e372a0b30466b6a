//! Native calls and their results in the form that every API accepts: the results of an answer's
//! calls follow it directly, in the order of the calls, and no id names two calls. Histories that
//! were cut, or in which calls were never carried out, do not fit; their calls become text of the
//! answer and their results messages of the user.

use std::collections::{HashSet, VecDeque};

use agent_domain::message::{ChatMessage, Role};

/// Moves results behind their calls; calls and results without a counterpart become text.
pub(super) fn pair(messages: Vec<ChatMessage>) -> Vec<ChatMessage> {
    let mut paired = Vec::with_capacity(messages.len());
    let mut rest = VecDeque::from(messages);
    let mut ids = HashSet::new();
    while let Some(mut message) = rest.pop_front() {
        if message.role == Role::Tool {
            message = ChatMessage::new(Role::User, message.text);
        }
        let (mut results, mut unanswered) = (Vec::new(), Vec::new());
        for mut call in std::mem::take(&mut message.calls) {
            match take_result(&mut rest, &call.id) {
                None => unanswered.push(call),
                Some(mut result) => {
                    call.id = unused(call.id, &mut ids);
                    if let Some(ended) = &mut result.result_of {
                        ended.id.clone_from(&call.id);
                    }
                    message.calls.push(call);
                    results.push(result);
                }
            }
        }
        message.write_out(&unanswered);
        paired.push(message);
        paired.append(&mut results);
    }
    paired
}

/// Removes the result of a call from the messages up to the next answer.
fn take_result(rest: &mut VecDeque<ChatMessage>, id: &str) -> Option<ChatMessage> {
    let mut behind = rest
        .iter()
        .take_while(|message| message.role != Role::Assistant);
    let is_result = |message: &ChatMessage| {
        let ended = message.result_of.as_ref();
        message.role == Role::Tool && ended.is_some_and(|ended| ended.id == id)
    };
    let place = behind.position(is_result)?;
    rest.remove(place)
}

/// Returns an id that no earlier call has: `id`, or the next number.
fn unused(mut id: String, ids: &mut HashSet<String>) -> String {
    let mut number = ids.len();
    while id.is_empty() || !ids.insert(id.clone()) {
        id = format!("call_{number}");
        number += 1;
    }
    id
}

#[cfg(test)]
mod tests {
    use call_text::native::{EndedCall, NativeCall};

    use super::*;

    /// Reads `who text`: calls of an answer are `+id`, the id of a result is `=id`.
    fn message(line: &str) -> ChatMessage {
        let (who, text) = line.split_once(' ').unwrap_or((line, ""));
        let (role, marks) = match who.split_at(1) {
            ("u", _) => (Role::User, ""),
            ("a", marks) => (Role::Assistant, marks),
            (_, marks) => (Role::Tool, marks),
        };
        let call = |id: &str| NativeCall {
            id: id.to_owned(),
            name: "f".to_owned(),
            arguments_json: "{}".to_owned(),
        };
        let ended = |id: &str| EndedCall {
            id: id.to_owned(),
            failed: false,
        };
        ChatMessage {
            calls: marks.split('+').skip(1).map(call).collect(),
            result_of: marks.strip_prefix('=').map(ended),
            ..ChatMessage::new(role, text)
        }
    }

    fn line(message: &ChatMessage) -> String {
        let who = &message.role.as_str()[..1];
        let calls = message.calls.iter().map(|call| format!("+{}", call.id));
        let ended = message.result_of.as_ref();
        let ended = ended.map(|ended| format!("={}", ended.id));
        let marks: String = calls.chain(ended).collect();
        format!("{who}{marks} {}", message.text)
            .trim_end()
            .to_owned()
    }

    #[test]
    fn every_result_follows_its_call_and_the_rest_is_text() {
        const WRITTEN: &str = r#"<tool_call>{"name":"f","arguments":{}}</tool_call>"#;
        let lost = format!("a {WRITTEN}");
        let half = format!("a+y Go.\n{WRITTEN}");
        for (given, expected) in [
            (&["u Hi", "a Yes"][..], &["u Hi", "a Yes"][..]),
            (&["a+x", "t=x 1"], &["a+x", "t=x 1"]),
            (
                &["a+x+y", "t=y 2", "u !", "t=x 1"],
                &["a+x+y", "t=x 1", "t=y 2", "u !"],
            ),
            (&["t=x 1", "u Hi"], &["u 1", "u Hi"]),
            (&["a+x", "u Hi"], &[&lost, "u Hi"]),
            (&["a+x", "a Late", "t=x 1"], &[&lost, "a Late", "u 1"]),
            (&["a+x+y Go.", "t=y 2"], &[&half, "t=y 2"]),
            (&["a+x", "t=x 1", "t=x 2"], &["a+x", "t=x 1", "u 2"]),
            (
                &["a+x", "t=x 1", "a+x", "t=x 2"],
                &["a+x", "t=x 1", "a+call_1", "t=call_1 2"],
            ),
            (
                &["a++", "t= 1", "t= 2"],
                &["a+call_0+call_1", "t=call_0 1", "t=call_1 2"],
            ),
        ] {
            let paired = pair(given.iter().map(|line| message(line)).collect());
            let paired: Vec<String> = paired.iter().map(line).collect();
            assert_eq!(paired, expected, "{given:?}");
        }
    }
}
