//! Agent profiles: ComfyTavern's `agent_profile.json`, unmodified.
//!
//! Every key that ComfyTavern defines may be there, and any other; all are kept. Tavern's own
//! settings stand under `custom_metadata.tavern`, the place that the format leaves to others:
//!
//! ```json
//! {"model": "house", "dialect": "action", "language": "en", "system_prompt": "You are ..."}
//! ```
//!
//! Profiles come from people, so everything that is wrong with one is reported together. What is
//! not carried out here yet (goals, events, private state) is kept, and its use is a finding, as is a key that nothing reads.

use call_text::{Dialect, prompt::Language};
use core_types::{LoadDiagnostic, ProfileId};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::plan::ToolOffer;

/// The largest profile that is read, in bytes.
pub const MAX_PROFILE_BYTES: usize = 1 << 20;
/// The most tools that a profile may name.
pub const MAX_INVENTORY: usize = 500;
/// The longest system prompt, in bytes.
pub const MAX_SYSTEM_PROMPT_BYTES: usize = 64 << 10;

/// Who an agent is.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The id.
    pub id: ProfileId,
    /// The name for people.
    pub name: String,
    /// What the agent is; may be empty.
    pub description: String,
    /// `tool_ids_inventory` as the file names it.
    pub tool_ids: Vec<String>,
    /// Tools that the skills of `skill_workflow_ids_inventory` are known by.
    pub skill_tool_ids: Vec<String>,
    /// The workflow that deliberates; the built-in deliberation if missing.
    pub deliberation: Option<String>,
    /// `custom_metadata.tavern`.
    pub tavern: TavernSection,
    /// What the file asks for that has no effect.
    pub diagnostics: Vec<LoadDiagnostic>,
    /// The profile as it was written.
    pub text: String,
}

impl Profile {
    /// Returns what changes when the text changes.
    pub fn etag(&self) -> String {
        let digest = hex::encode(Sha256::digest(&self.text));
        digest.chars().take(32).collect()
    }

    /// Returns every tool that the agent may use, once, tools before skills.
    pub fn inventory(&self) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        for id in self.tool_ids.iter().chain(&self.skill_tool_ids) {
            if !all.contains(id) {
                all.push(id.clone());
            }
        }
        all
    }

    /// Returns the instructions that the agent's model is given before the list of tools.
    pub fn system_prompt(&self) -> String {
        match &self.tavern.system_prompt {
            Some(prompt) => prompt.clone(),
            None if self.description.is_empty() => format!("You are {}.", self.name),
            None => format!("You are {}. {}", self.name, self.description),
        }
    }
}

/// What `custom_metadata.tavern` says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TavernSection {
    /// The model, as the settings name it; the default model if missing.
    pub model: Option<String>,
    /// The dialect that the agent is taught and read in; ACTION is taught and any is read if
    /// missing.
    pub dialect: Option<Dialect>,
    /// The language of the list of tools; English if missing.
    pub language: Option<Language>,
    /// The instructions before the list of tools; made from name and description if missing.
    pub system_prompt: Option<String>,
    /// How the model is offered its tools; as text if missing.
    pub tools: Option<ToolOffer>,
    /// The sampling temperature; the endpoint's own if missing.
    pub temperature: Option<f64>,
    /// The most tokens of one answer; the endpoint's own limit if missing.
    pub max_output_tokens: Option<u32>,
    /// Whether the model is stopped as soon as it names a tool that is not there; it is if missing.
    pub stop_at_unknown_tool: Option<bool>,
}

/// Everything that is wrong with a profile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct ProfileError {
    /// The problems in the order in which they were found; never empty.
    pub problems: Vec<ProfileProblem>,
}

/// One thing that is wrong with a profile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{}{message}", .pointer, if .pointer.is_empty() { "" } else { ": " })]
pub struct ProfileProblem {
    /// JSON pointer into the profile; empty for the profile as a whole.
    pub pointer: String,
    /// What is wrong, with the remedy.
    pub message: String,
}

impl ProfileError {
    /// Reports one problem of the profile as a whole.
    fn whole(message: impl ToString) -> Self {
        Self {
            problems: vec![ProfileProblem {
                pointer: String::new(),
                message: message.to_string(),
            }],
        }
    }
}

/// Reads a profile.
///
/// # Errors
/// [`ProfileError`] with everything that is wrong.
pub fn read(text: &str) -> Result<Profile, ProfileError> {
    let limits = json_schema::JsonLimits {
        max_bytes: MAX_PROFILE_BYTES,
        ..Default::default()
    };
    let source = json_schema::strict_json::parse_json_strict_with(text, &limits)
        .map_err(ProfileError::whole)?;
    let Value::Object(object) = &source else {
        return Err(ProfileError::whole("the profile is not a JSON object"));
    };
    let mut reader = Reader::default();
    let id = reader
        .required_text(object, "id")
        .and_then(|id| match ProfileId::new(id) {
            Ok(id) => Some(id),
            Err(error) => {
                reader.problem("/id", error);
                None
            }
        });
    let name = reader.optional_text(object, "", "name");
    let description = reader
        .optional_text(object, "", "description")
        .unwrap_or_default();
    let tool_ids = reader.ids(object, "tool_ids_inventory");
    let skills = reader.ids(object, "skill_workflow_ids_inventory");
    let deliberation = reader.optional_text(object, "", "core_deliberation_workflow_id");
    let tavern = reader.tavern(object);
    if tool_ids.len() + skills.len() > MAX_INVENTORY {
        reader.problem(
            "/tool_ids_inventory",
            format!(
                "it names {} tools and skills; {MAX_INVENTORY} are the most",
                tool_ids.len() + skills.len()
            ),
        );
    }
    match id {
        Some(id) if reader.problems.is_empty() => Ok(Profile {
            name: name
                .filter(|name| !name.is_empty())
                .unwrap_or_else(|| id.to_string()),
            id,
            description,
            tool_ids,
            deliberation: deliberation
                .filter(|id| !id.is_empty())
                .map(|id| workflow_stem(&id).to_owned()),
            skill_tool_ids: skills.iter().map(|skill| skill_tool(skill)).collect(),
            tavern,
            diagnostics: diagnose(object),
            text: text.to_owned(),
        }),
        _ => Err(ProfileError {
            problems: reader.problems,
        }),
    }
}

/// The keys that ComfyTavern defines and that are carried out or need not be.
const KEYS: [&str; 9] = [
    "id",
    "name",
    "description",
    "version",
    "schema_version",
    "core_deliberation_workflow_id",
    "skill_workflow_ids_inventory",
    "tool_ids_inventory",
    "custom_metadata",
];
/// The keys that ComfyTavern defines and that have no effect yet, with what happens instead.
const NOT_SUPPORTED: [(&str, &str); 5] = [
    (
        "initial_private_state_schema",
        "agents have no private state yet",
    ),
    (
        "initial_private_state_values",
        "agents have no private state yet",
    ),
    (
        "knowledge_base_references",
        "agents have no knowledge bases yet",
    ),
    (
        "subscribed_event_types",
        "no events are delivered to agents yet",
    ),
    (
        "initial_goals_reference",
        "the model is not shown any goals yet",
    ),
];

/// The settings of `custom_metadata.tavern`.
const TAVERN_KEYS: [&str; 8] = [
    "model",
    "dialect",
    "tools",
    "language",
    "system_prompt",
    "temperature",
    "max_output_tokens",
    "stop_at_unknown_tool",
];

/// Finds what a profile asks for that has no effect.
fn diagnose(object: &Map<String, Value>) -> Vec<LoadDiagnostic> {
    let is_used = |value: &Value| match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        _ => true,
    };
    let mut findings = Vec::new();
    for (key, value) in object {
        let pointer = format!("/{}", key.replace('~', "~0").replace('/', "~1"));
        let known = NOT_SUPPORTED.iter().find(|(known, _)| known == key);
        match known {
            Some((_, instead)) if is_used(value) => {
                findings.push(LoadDiagnostic::not_supported(pointer, *instead));
            }
            None if !KEYS.contains(&key.as_str()) => {
                let all = KEYS.into_iter().chain(NOT_SUPPORTED.map(|(key, _)| key));
                let near = json_schema::nearest_names(key, all);
                let nearest = near.first().map(String::as_str);
                findings.push(LoadDiagnostic::unknown_key(pointer, key, nearest));
            }
            _ => {}
        }
        if findings.len() == LoadDiagnostic::MAX {
            break;
        }
    }
    let version = object.get("schema_version").and_then(Value::as_str);
    if version.is_some_and(|version| version.split('.').next() != Some("1")) {
        let message = "only version 1 is known; the file is read as such";
        findings.push(LoadDiagnostic::not_supported("/schema_version", message));
    }
    findings.truncate(LoadDiagnostic::MAX);
    findings
}

/// Returns the tool by which a skill is called: the workflow that its id or path names.
fn skill_tool(skill: &str) -> String {
    format!("workflow:{}", workflow_stem(skill))
}

/// Returns the id of the workflow that an id, a tool's id or a path names (rule G107).
fn workflow_stem(written: &str) -> &str {
    let id = written.strip_prefix("workflow:").unwrap_or(written);
    let file = id.rsplit(['/', '\\']).next().unwrap_or(id);
    file.strip_suffix(".json").unwrap_or(file)
}

#[derive(Default)]
struct Reader {
    problems: Vec<ProfileProblem>,
}

impl Reader {
    fn problem(&mut self, pointer: &str, message: impl std::fmt::Display) {
        self.problems.push(ProfileProblem {
            pointer: pointer.to_owned(),
            message: message.to_string(),
        });
    }

    fn required_text(&mut self, object: &Map<String, Value>, key: &str) -> Option<String> {
        let text = self.optional_text(object, "", key);
        if !object.contains_key(key) {
            self.problem(&format!("/{key}"), "it is missing; give a text");
        }
        text
    }

    fn optional_text(
        &mut self,
        object: &Map<String, Value>,
        above: &str,
        key: &str,
    ) -> Option<String> {
        match object.get(key) {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(text.clone()),
            Some(_) => {
                self.problem(
                    &format!("{above}/{key}"),
                    "it is not a text; put it in quotes",
                );
                None
            }
        }
    }

    fn ids(&mut self, object: &Map<String, Value>, key: &str) -> Vec<String> {
        let entries = match object.get(key) {
            None | Some(Value::Null) => return Vec::new(),
            Some(Value::Array(entries)) => entries,
            Some(_) => {
                self.problem(&format!("/{key}"), "it is not a list; give a list of ids");
                return Vec::new();
            }
        };
        let mut ids = Vec::new();
        for (index, entry) in entries.iter().enumerate() {
            match entry.as_str().map(core_types::ToolId::new) {
                Some(Ok(id)) => ids.push(id.to_string()),
                Some(Err(error)) => self.problem(&format!("/{key}/{index}"), error),
                None => self.problem(
                    &format!("/{key}/{index}"),
                    "it is not a text; give a tool's id",
                ),
            }
        }
        ids
    }

    fn tavern(&mut self, object: &Map<String, Value>) -> TavernSection {
        const PLACE: &str = "/custom_metadata/tavern";
        let section = match object
            .get("custom_metadata")
            .and_then(|metadata| metadata.get("tavern"))
        {
            None | Some(Value::Null) => return TavernSection::default(),
            Some(Value::Object(section)) => section,
            Some(_) => {
                self.problem(PLACE, "it is not an object; give settings by name");
                return TavernSection::default();
            }
        };
        let known = |key: &&String| TAVERN_KEYS.contains(&key.as_str());
        for key in section.keys().filter(|key| !known(key)) {
            let all = TAVERN_KEYS.join(", ");
            let problem = format!("no such setting; the settings are {all}");
            self.problem(&format!("{PLACE}/{key}"), problem);
        }
        let system_prompt = self.optional_text(section, PLACE, "system_prompt");
        if system_prompt
            .as_ref()
            .is_some_and(|prompt| prompt.len() > MAX_SYSTEM_PROMPT_BYTES)
        {
            self.problem(
                &format!("{PLACE}/system_prompt"),
                format!("it is longer than {MAX_SYSTEM_PROMPT_BYTES} bytes; shorten it"),
            );
        }
        TavernSection {
            model: self.optional_text(section, PLACE, "model"),
            dialect: self.word(
                section,
                "dialect",
                "action, tam_v1, tam_v2, vcp, tool_tag or tool_json",
                |word| {
                    Dialect::ALL
                        .iter()
                        .copied()
                        .find(|dialect| dialect.as_str() == word && *dialect != Dialect::Native)
                },
            ),
            tools: self.word(section, "tools", "text, native or both", |word| {
                let mut all = ToolOffer::ALL.into_iter();
                all.find(|offer| offer.as_str() == word)
            }),
            language: self.word(
                section,
                "language",
                "en, zh or a tag such as zh-CN",
                |tag| Language::from_tag(tag).ok(),
            ),
            system_prompt,
            temperature: self.number(section, "temperature", "a number from 0 to 2", |value| {
                value.as_f64().filter(|number| (0.0..=2.0).contains(number))
            }),
            max_output_tokens: self.number(
                section,
                "max_output_tokens",
                "a whole number from 1 to 1000000",
                |value| {
                    value
                        .as_u64()
                        .filter(|number| (1..=1_000_000).contains(number))
                        .and_then(|number| u32::try_from(number).ok())
                },
            ),
            stop_at_unknown_tool: self.number(
                section,
                "stop_at_unknown_tool",
                "true or false",
                Value::as_bool,
            ),
        }
    }

    fn word<T>(
        &mut self,
        section: &Map<String, Value>,
        key: &str,
        expected: &str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Option<T> {
        self.number(section, key, expected, |value| {
            value.as_str().and_then(&read)
        })
    }

    fn number<T>(
        &mut self,
        section: &Map<String, Value>,
        key: &str,
        expected: &str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Option<T> {
        let value = section.get(key).filter(|value| !value.is_null())?;
        let read = read(value);
        if read.is_none() {
            self.problem(
                &format!("/custom_metadata/tavern/{key}"),
                format!("it is {value}; give {expected}"),
            );
        }
        read
    }
}

#[cfg(test)]
mod tests;
