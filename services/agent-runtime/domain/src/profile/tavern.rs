//! `custom_metadata.tavern`: Tavern's settings in a profile. Unlike the rest of a profile the
//! section is strict (rule G101).

use call_catalogue::{Dialect, TrainedFormat};
use call_prompt::prompt::Language;
use serde_json::{Map, Value};

use super::{MAX_SYSTEM_PROMPT_BYTES, approvals};
use crate::{
    budgets::{Budgets, Limits, MOST_COUNT, MOST_SECONDS},
    compaction::CompactionSettings,
    document::{DocumentReader, Section},
    plan::{Interaction, ToolOffer},
    reduction::Reduction,
};

/// The place of the section.
pub(super) const PLACE: &str = "/custom_metadata/tavern";
/// The most events that may wait for an agent of a scene (rule G407).
const MAX_QUEUE: u64 = 1_024;
/// The most patterns of paths.
const MAX_PATTERNS: usize = 100;
/// The most models that may replace another.
const MAX_FALLBACKS: usize = 16;
/// The most workflows that shorten outputs.
const MAX_REDUCTIONS: usize = 16;

/// The settings that are read.
const KEYS: [&str; 20] = [
    "model",
    "fallbacks",
    "dialect",
    "formats",
    "tools",
    "language",
    "system_prompt",
    "temperature",
    "max_output_tokens",
    "stop_at_unknown_tool",
    "begins_in_thought",
    "budgets",
    "queue_limit",
    "world_write",
    "compaction",
    "reduction",
    "interaction",
    "nonce",
    "tick_when_idle",
    approvals::APPROVALS,
];
/// The settings that have no effect yet, with the actual behaviour.
pub(super) const WITHOUT_EFFECT: [(&str, &str); 4] = [
    (
        "on_repair",
        "a call that needed a repair is not carried out",
    ),
    ("thinking_tokens", "the endpoint decides on thinking"),
    ("missing_deliberation", "a turn without its workflow fails"),
    (
        "profile_revision",
        "it pins the profile of an agent of a scene, under its custom_runtime_config",
    ),
];

/// The settings of `custom_metadata.tavern`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TavernSection {
    /// The model, as the settings name it; the default model if missing.
    pub model: Option<String>,
    /// The dialect that the agent is taught and read in; ACTION is taught and any is read if
    /// missing.
    pub dialect: Option<Dialect>,
    /// The formats of trained models in which answers are read as well; all of them if missing.
    pub formats: Option<Vec<TrainedFormat>>,
    /// The language of the list of tools; English if missing.
    pub language: Option<Language>,
    /// The instructions before the list of tools; made from name and description if missing.
    pub system_prompt: Option<String>,
    /// The form in which the model is offered its tools; as text if missing.
    pub tools: Option<ToolOffer>,
    /// The sampling temperature; the endpoint's own if missing.
    pub temperature: Option<f64>,
    /// The most tokens of one answer; the endpoint's own limit if missing.
    pub max_output_tokens: Option<u32>,
    /// The models that are called in its place, in order; the fallbacks of the settings if missing.
    pub fallbacks: Option<Vec<String>>,
    /// The upper bounds of a turn's budgets.
    pub budgets: Limits,
    /// Whether the model is stopped as soon as it names a tool that does not exist; it is if
    /// missing.
    pub stop_at_unknown_tool: Option<bool>,
    /// Whether the model's answers begin in a thought whose opening mark its template wrote; the settings of the
    /// model decide if missing.
    pub begins_in_thought: Option<bool>,
    /// The conditions of compacting a conversation; the defaults if missing.
    pub compaction: Option<CompactionSettings>,
    /// The workflows that shorten the long outputs of tools; outputs are only cut if missing.
    pub reduction: Option<Vec<Reduction>>,
    /// Whether a turn waits for the answers to its questions; it does if missing.
    pub interaction: Option<Interaction>,
    /// Whether the marks that open blocks of calls hold a nonce of the turn; they do not if missing.
    pub nonce: Option<bool>,
    /// The most events that wait for the agent in a scene; 64 if missing.
    pub queue_limit: Option<usize>,
    /// Patterns of the paths of a world state that the agent may change; all if missing.
    pub world_write: Option<Vec<String>>,
    /// Whether ticks start turns although nothing changed; they do not if missing.
    pub tick_when_idle: Option<bool>,
    /// The revision of the profile that an agent of a scene keeps; the newest if missing.
    pub profile_revision: Option<u64>,
    /// Rules that the registry holds the agent's calls against.
    pub approvals: Vec<Value>,
}

impl TavernSection {
    /// Merges these settings over those of a profile: missing settings stay the profile's, budgets
    /// only shrink (rule G105), and rules for calls are added to the profile's.
    pub fn over(&self, profile: &Self) -> Self {
        Self {
            model: self.model.clone().or_else(|| profile.model.clone()),
            dialect: self.dialect.or(profile.dialect),
            formats: self.formats.clone().or_else(|| profile.formats.clone()),
            language: self.language.or(profile.language),
            system_prompt: self
                .system_prompt
                .clone()
                .or_else(|| profile.system_prompt.clone()),
            tools: self.tools.or(profile.tools),
            temperature: self.temperature.or(profile.temperature),
            max_output_tokens: self.max_output_tokens.or(profile.max_output_tokens),
            fallbacks: self.fallbacks.clone().or_else(|| profile.fallbacks.clone()),
            budgets: self.budgets.within(&profile.budgets),
            stop_at_unknown_tool: self.stop_at_unknown_tool.or(profile.stop_at_unknown_tool),
            begins_in_thought: self.begins_in_thought.or(profile.begins_in_thought),
            compaction: self
                .compaction
                .clone()
                .or_else(|| profile.compaction.clone()),
            reduction: self.reduction.clone().or_else(|| profile.reduction.clone()),
            interaction: self.interaction.or(profile.interaction),
            nonce: self.nonce.or(profile.nonce),
            queue_limit: self.queue_limit.or(profile.queue_limit),
            world_write: self
                .world_write
                .clone()
                .or_else(|| profile.world_write.clone()),
            tick_when_idle: self.tick_when_idle.or(profile.tick_when_idle),
            profile_revision: self.profile_revision,
            approvals: [profile.approvals.as_slice(), &self.approvals].concat(),
        }
    }
}

/// Reads the section; a missing section is empty.
pub(super) fn read(reader: &mut DocumentReader, profile: &Map<String, Value>) -> TavernSection {
    let metadata = profile.get("custom_metadata");
    let section = metadata.and_then(|metadata| metadata.get("tavern"));
    read_section(reader, section, PLACE)
}

/// The words for the formats of trained models.
fn formats() -> String {
    let words: Vec<&str> = TrainedFormat::ALL
        .iter()
        .map(|format| format.as_str())
        .collect();
    format!("a list of {}", words.join(", "))
}

/// Reads the section at a place of a document; a missing section is empty.
pub(crate) fn read_section(
    reader: &mut DocumentReader,
    section: Option<&Value>,
    place: &str,
) -> TavernSection {
    let section = section.filter(|section| !section.is_null());
    let Some(mut section) = section.and_then(|section| Section::open(reader, section, place))
    else {
        return TavernSection::default();
    };
    section.refuse_others(KEYS.into_iter().chain(WITHOUT_EFFECT.map(|(key, _)| key)));
    let within = format!("a text of at most {MAX_SYSTEM_PROMPT_BYTES} bytes");
    TavernSection {
        model: section.text("model"),
        fallbacks: section.read("fallbacks", "a list of at most 16 models", |value| {
            texts(value, MAX_FALLBACKS)
        }),
        dialect: section.read(
            "dialect",
            "action, tam_v1, tam_v2, vcp, tool_tag or tool_json",
            |value| {
                let mut taught = Dialect::IN_TEXT.iter().copied();
                taught.find(|dialect| Some(dialect.as_str()) == value.as_str())
            },
        ),
        formats: section.read("formats", &formats(), |value| {
            let known = |value: &Value| TrainedFormat::from_word(value.as_str()?);
            value.as_array()?.iter().map(known).collect()
        }),
        tools: section.read("tools", "text, native or both", |value| {
            let mut all = ToolOffer::ALL.into_iter();
            all.find(|offer| Some(offer.as_str()) == value.as_str())
        }),
        language: section.read("language", "en, zh or a tag such as zh-CN", |value| {
            Language::from_tag(value.as_str()?).ok()
        }),
        system_prompt: section.read("system_prompt", &within, |value| {
            let prompt = value.as_str()?;
            (prompt.len() <= MAX_SYSTEM_PROMPT_BYTES).then(|| prompt.to_owned())
        }),
        temperature: section.read("temperature", "a number from 0 to 2", |value| {
            value.as_f64().filter(|number| (0.0..=2.0).contains(number))
        }),
        max_output_tokens: section
            .count("max_output_tokens", 1_000_000)
            .and_then(|most| u32::try_from(most).ok()),
        stop_at_unknown_tool: section.read("stop_at_unknown_tool", "true or false", Value::as_bool),
        begins_in_thought: section.read("begins_in_thought", "true or false", Value::as_bool),
        budgets: section.section("budgets").map(budgets).unwrap_or_default(),
        compaction: section.section("compaction").map(compaction),
        reduction: section.read("reduction", REDUCTIONS, reductions),
        interaction: section.read("interaction", "wait or continue", |value| {
            let mut all = Interaction::ALL.into_iter();
            all.find(|interaction| Some(interaction.as_str()) == value.as_str())
        }),
        nonce: section.read("nonce", "true or false", Value::as_bool),
        queue_limit: section
            .count("queue_limit", MAX_QUEUE)
            .and_then(|most| usize::try_from(most).ok()),
        tick_when_idle: section.read("tick_when_idle", "true or false", Value::as_bool),
        profile_revision: section.count("profile_revision", u64::MAX >> 1),
        world_write: section.read(
            "world_write",
            "a list of paths such as `flags.*`",
            |value| texts(value, MAX_PATTERNS),
        ),
        approvals: approvals::read(&mut section),
    }
}

/// The expected form of `reduction`.
const REDUCTIONS: &str =
    "a list of at most 16 objects of `tools`, a list of ids or `*`, and `workflow`";

fn reductions<T: serde::de::DeserializeOwned>(value: &Value) -> Option<Vec<T>> {
    let list = value
        .as_array()
        .filter(|list| list.len() <= MAX_REDUCTIONS)?;
    let read = list.iter();
    read.map(|entry| serde_json::from_value(entry.clone()).ok())
        .collect()
}

/// Reads a list of at most so many texts.
fn texts(value: &Value, most: usize) -> Option<Vec<String>> {
    let list = value.as_array().filter(|list| list.len() <= most)?;
    list.iter()
        .map(|text| text.as_str().map(str::to_owned))
        .collect()
}

fn compaction(mut section: Section<'_>) -> CompactionSettings {
    section.refuse_others(["at_percent", "keep_turns", "workflow"]);
    let defaults = CompactionSettings::default();
    let at_percent = section.count("at_percent", 95);
    let keep_turns = section.count("keep_turns", 1_000);
    let workflow = section.text("workflow");
    CompactionSettings {
        workflow,
        at_percent: at_percent
            .and_then(|percent| u32::try_from(percent).ok())
            .unwrap_or(defaults.at_percent),
        keep_turns: keep_turns
            .and_then(|turns| usize::try_from(turns).ok())
            .unwrap_or(defaults.keep_turns),
    }
}

fn budgets(mut section: Section<'_>) -> Limits {
    section.refuse_others([
        "iterations",
        "calls_per_answer",
        "calls",
        "bytes",
        "tokens",
        "money_micros",
        "wall_seconds",
        "depth",
    ]);
    let narrow = |count: Option<u64>| count.and_then(|count| u32::try_from(count).ok());
    let most = Budgets::MOST;
    Limits {
        iterations: narrow(section.count("iterations", most.iterations.into())),
        calls_per_response: narrow(
            section.count("calls_per_answer", most.calls_per_response.into()),
        ),
        calls: narrow(section.count("calls", most.calls.into())),
        bytes: section.count("bytes", most.bytes),
        depth: narrow(section.count("depth", most.depth.into())),
        tokens: section.count("tokens", MOST_COUNT),
        money_micros: section.count("money_micros", MOST_COUNT),
        wall_seconds: section.count("wall_seconds", MOST_SECONDS),
    }
}
