//! The file that a scripted model plays.
//!
//! A script is a list of turns. A request is answered by the turn whose place is the number of
//! answers that the request already holds, so that a script needs no memory: a request that is
//! repeated after a crash gets the same answer, and conversations do not disturb each other. The
//! turn first checks the request; all missing parts are reported together. A model that several
//! agents share plays a part for each.

use std::time::Duration;

use agent_domain::message::{ChatMessage, Role};
use serde::Deserialize;

/// A script.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// The purpose of the script, for people.
    #[serde(default)]
    pub description: String,
    /// The answers in order.
    #[serde(default)]
    pub turns: Vec<ScriptTurn>,
    /// The answers to requests with the system message of an agent, in place of `turns`; the first
    /// part that fits is played.
    #[serde(default)]
    pub parts: Vec<ScriptPart>,
    /// The answer to a message of the user that no turn expects; such a request fails if missing.
    #[serde(default)]
    pub otherwise: Option<ScriptTurn>,
}

/// The part of a model for one agent.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptPart {
    /// Texts that the system message contains, all of them.
    pub system_contains: Vec<Lines>,
    /// The answers in order.
    pub turns: Vec<ScriptTurn>,
}

/// One answer, and its expected request.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptTurn {
    /// A name for messages; its number if missing.
    #[serde(default)]
    pub name: String,
    /// The expected request.
    #[serde(default)]
    pub expect: Expectation,
    /// Whether the caller wrote this answer, so that it is never requested.
    #[serde(default)]
    pub from_caller: bool,
    /// The answer.
    #[serde(default)]
    pub answer: ScriptAnswer,
    /// The fault after the answer's pieces.
    #[serde(default)]
    pub fault: Option<Fault>,
}

/// The expected content of a request. A missing field is not checked.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Expectation {
    /// The roles of all messages in order.
    pub roles: Option<Vec<Role>>,
    /// Parts that the system message has.
    pub system_contains: Vec<Lines>,
    /// Parts that the system message does not have.
    pub system_lacks: Vec<Lines>,
    /// The last message as a whole.
    pub last_is: Option<Lines>,
    /// Parts that the last message has.
    pub last_contains: Vec<Lines>,
    /// Parts that the last message does not have.
    pub last_lacks: Vec<Lines>,
    /// Parts that some message has.
    pub contains: Vec<Lines>,
    /// Parts that no message has.
    pub lacks: Vec<Lines>,
}

/// An answer of the model.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScriptAnswer {
    /// The thought, which is sent first.
    pub thinking: Lines,
    /// The text.
    pub text: Lines,
    /// Characters of one piece; zero sends everything at once.
    pub chunk: usize,
    /// The wait before each piece.
    #[serde(with = "settings::DurationText")]
    pub delay: Duration,
    /// The reason to stop.
    pub finish_reason: String,
    /// Tokens of the request.
    pub input_tokens: u32,
    /// Tokens of the answer.
    pub output_tokens: u32,
    /// Structured calls in the form of chat completions.
    pub tool_calls: Option<serde_json::Value>,
}

impl Default for ScriptAnswer {
    fn default() -> Self {
        Self {
            thinking: Lines::default(),
            text: Lines::default(),
            chunk: 0,
            delay: Duration::ZERO,
            finish_reason: "stop".to_owned(),
            input_tokens: 0,
            output_tokens: 0,
            tool_calls: None,
        }
    }
}

/// A fault of the endpoint.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Fault {
    /// The endpoint refuses.
    Refused {
        /// The HTTP status.
        status: u16,
        /// The message of the vendor.
        message: String,
    },
    /// The request is too long for the model's context.
    ContextExceeded,
    /// The connection breaks.
    Cut,
    /// The model falls silent until it is cancelled or out of time.
    Hang,
}

/// A text, or its lines.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Lines {
    /// The text.
    Text(String),
    /// Its lines, joined by line breaks.
    Lines(Vec<String>),
}

impl Default for Lines {
    fn default() -> Self {
        Lines::Text(String::new())
    }
}

impl Lines {
    /// Returns the text.
    pub fn text(&self) -> String {
        match self {
            Lines::Text(text) => text.clone(),
            Lines::Lines(lines) => lines.join("\n"),
        }
    }
}

impl Script {
    /// Returns the turn that answers `messages`.
    ///
    /// # Errors
    /// A sentence that names the turn and all missing parts of the request.
    pub fn play(&self, name: &str, messages: &[ChatMessage]) -> Result<&ScriptTurn, String> {
        let by_user = messages
            .last()
            .is_some_and(|last| last.role == Role::User && !last.text.starts_with("Observation: "));
        let otherwise = self.otherwise.as_ref().filter(|_| by_user);
        let expected = self.expected(name, messages);
        expected.or_else(|problem| otherwise.ok_or(problem))
    }

    fn turns_for(&self, messages: &[ChatMessage]) -> &[ScriptTurn] {
        let mut parts = self.parts.iter();
        let part = parts.find(|part| part.is_for(messages));
        part.map_or(&self.turns, |part| &part.turns)
    }

    fn expected(&self, name: &str, messages: &[ChatMessage]) -> Result<&ScriptTurn, String> {
        let place = messages
            .iter()
            .filter(|message| message.role == Role::Assistant)
            .count();
        let turns = self.turns_for(messages);
        let Some(turn) = turns.get(place) else {
            return Err(format!(
                "the script `{name}` is exhausted: it has {} turns and was asked for turn {}",
                turns.len(),
                place + 1
            ));
        };
        let mut problems = turn.expect.check(messages);
        if turn.from_caller {
            problems.push(
                "this answer is the caller's, so the model must not be asked for it".to_owned(),
            );
        }
        if problems.is_empty() {
            return Ok(turn);
        }
        let title = if turn.name.is_empty() {
            String::new()
        } else {
            format!(" ({})", turn.name)
        };
        Err(format!(
            "turn {} of the script `{name}`{title} was not asked as it must be: {}",
            place + 1,
            problems.join("; ")
        ))
    }
}

impl ScriptPart {
    fn is_for(&self, messages: &[ChatMessage]) -> bool {
        let system = texts(messages, |message| message.role == Role::System);
        let mut wanted = self.system_contains.iter().map(Lines::text);
        wanted.all(|part| system.iter().any(|text| text.contains(&part)))
    }
}

impl Expectation {
    fn check(&self, messages: &[ChatMessage]) -> Vec<String> {
        let mut problems = Vec::new();
        let roles: Vec<Role> = messages.iter().map(|message| message.role).collect();
        if let Some(expected) = self.roles.as_ref().filter(|expected| **expected != roles) {
            let names = |roles: &[Role]| {
                roles
                    .iter()
                    .map(|role| role.as_str())
                    .collect::<Vec<_>>()
                    .join(", ")
            };
            problems.push(format!(
                "the roles are [{}] instead of [{}]",
                names(&roles),
                names(expected)
            ));
        }
        let system: Vec<&str> = texts(messages, |message| message.role == Role::System);
        part_check(
            "the system message",
            &system,
            &self.system_contains,
            &self.system_lacks,
            &mut problems,
        );
        let last: Vec<&str> = messages
            .last()
            .map(|message| message.text.as_str())
            .into_iter()
            .collect();
        if let Some(expected) = self
            .last_is
            .as_ref()
            .map(Lines::text)
            .filter(|expected| last != [expected])
        {
            problems.push(format!(
                "the last message is {:?} instead of {expected:?}",
                last.first().unwrap_or(&"")
            ));
        }
        part_check(
            "the last message",
            &last,
            &self.last_contains,
            &self.last_lacks,
            &mut problems,
        );
        let all = texts(messages, |_| true);
        part_check(
            "any message",
            &all,
            &self.contains,
            &self.lacks,
            &mut problems,
        );
        problems
    }
}

fn texts(messages: &[ChatMessage], which: impl Fn(&ChatMessage) -> bool) -> Vec<&str> {
    messages
        .iter()
        .filter(|message| which(message))
        .map(|message| message.text.as_str())
        .collect()
}

fn part_check(
    place: &str,
    texts: &[&str],
    contains: &[Lines],
    lacks: &[Lines],
    problems: &mut Vec<String>,
) {
    let found = |part: &str| texts.iter().any(|text| text.contains(part));
    for part in contains.iter().map(Lines::text).filter(|part| !found(part)) {
        problems.push(format!("{part:?} is not in {place}"));
    }
    for part in lacks.iter().map(Lines::text).filter(|part| found(part)) {
        problems.push(format!("{part:?} is in {place}, where it must not be"));
    }
}

#[cfg(test)]
mod tests;
