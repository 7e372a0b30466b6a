//! The settings of models.

use std::{path::PathBuf, time::Duration};

use agent_domain::usage::Prices;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use settings::Problems;

/// The most requests that may be in flight to one model.
const MAX_CONCURRENT: usize = 10_000;
/// The highest rate of requests to one model, per minute.
const MAX_PER_MINUTE: u32 = 1_000_000;

/// One model.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "provider", rename_all = "lowercase")]
pub enum ModelSettings {
    /// An OpenAI-compatible endpoint.
    Openai(EndpointSettings),
    /// An Anthropic-compatible endpoint.
    Anthropic(EndpointSettings),
    /// A file that is played.
    Scripted(ScriptedSettings),
}

/// A model behind an endpoint.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EndpointSettings {
    /// The address above `/chat/completions` or `/messages`, such as `https://api.openai.com/v1`
    /// or `https://api.anthropic.com/v1`.
    pub base_url: String,
    /// The endpoint's own name for the model.
    pub model: String,
    /// The environment variable with the key; no key is sent if this and `api_key_file` are
    /// missing.
    pub api_key_env: Option<String>,
    /// The file with the key, read for every request.
    pub api_key_file: Option<PathBuf>,
    /// The PEM file with the CAs of an `https` address, read at the start. Default: the CAs of this machine.
    pub ca_file: Option<PathBuf>,
    /// The time limit of connecting. Default `5s`.
    #[serde(with = "settings::DurationText")]
    pub connect_timeout: Duration,
    /// The time limit of the first token of an answer. Default `60s`.
    #[serde(with = "settings::DurationText")]
    pub first_token_timeout: Duration,
    /// The time limit of each further token of an answer. Default `60s`.
    #[serde(with = "settings::DurationText")]
    pub token_gap_timeout: Duration,
    /// The time limit of the whole answer, waits included. Default `5m`.
    #[serde(with = "settings::DurationText")]
    pub total_timeout: Duration,
    /// The most retries of a request that did not arrive or was refused for a while (408, 409, 429,
    /// 500, 502 to 504, 520 to 524, 529), or whose answer ended before any of it was shown. Default
    /// 4, at most 10.
    pub retries: u32,
    /// The longest wait that the endpoint may request; a longer wait fails at once. Default `30s`.
    #[serde(with = "settings::DurationText")]
    pub retry_after_limit: Duration,
    /// The models that replace it, in order, when it fails before any text of the answer. Their own
    /// fallbacks do not count. Default none.
    pub fallbacks: Vec<String>,
    /// Requests in flight at once; others wait. Default 256.
    pub max_concurrent: usize,
    /// Requests per minute, spread evenly; others wait. Default 0: no limit.
    pub requests_per_minute: u32,
    /// The prices of tokens, in millionths of `currency` per million tokens: `input`, `output`, and
    /// `cache_read` and `cache_write` where they differ from `input`. Default none: no cost is
    /// booked.
    pub price_per_million_micros: Option<Prices>,
    /// The currency of the prices. Default `USD`.
    pub currency: String,
    /// The most tokens of a request and its answer together; a conversation near this limit is
    /// compacted. Default 0: it is unknown, and nothing is compacted.
    pub context_tokens: u64,
    /// Whether answers keep to the grammar of the visible tools' calls, which is sent as `grammar` to
    /// a server of llama.cpp: `none`, `free`, or `call_first`, which requires a call in the first answer of
    /// a turn. For `openai`; not where tools are declared natively. Default `none`.
    pub grammar: GrammarUse,
    /// Whether the text of an answer begins in a thought, because the template of the model has written the opening
    /// mark: everything up to the closing mark is thinking, and an answer without it fails. Default false.
    pub begins_in_thought: bool,
    /// Sends requests through the proxy that the environment names. Default false.
    pub use_system_proxy: bool,
}

impl Default for EndpointSettings {
    fn default() -> Self {
        Self {
            base_url: String::new(),
            model: String::new(),
            api_key_env: None,
            api_key_file: None,
            ca_file: None,
            connect_timeout: Duration::from_secs(5),
            first_token_timeout: Duration::from_secs(60),
            token_gap_timeout: Duration::from_secs(60),
            total_timeout: Duration::from_secs(300),
            retries: 4,
            retry_after_limit: Duration::from_secs(30),
            fallbacks: Vec::new(),
            max_concurrent: 256,
            requests_per_minute: 0,
            price_per_million_micros: None,
            currency: "USD".to_owned(),
            context_tokens: 0,
            grammar: GrammarUse::None,
            begins_in_thought: false,
            use_system_proxy: false,
        }
    }
}

/// Whether answers keep to a grammar.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GrammarUse {
    /// Answers keep to no grammar.
    #[default]
    None,
    /// Answers keep to a grammar, and may hold calls.
    Free,
    /// Answers keep to a grammar, and the first answer of a turn holds a call.
    CallFirst,
}

/// A model that plays a file.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ScriptedSettings {
    /// The file, beneath `scripts_dir`.
    pub script: PathBuf,
    /// As for an endpoint. Default 0.
    pub context_tokens: u64,
    /// As for an endpoint. Default false.
    pub begins_in_thought: bool,
}

impl ModelSettings {
    /// Adds all problems, with keys below `key`.
    pub fn check(&self, key: &str, problems: &mut Problems) {
        match self {
            Self::Openai(settings) => settings.check(key, problems),
            Self::Anthropic(settings) => {
                settings.check(key, problems);
                if settings.grammar != GrammarUse::None {
                    let remedy =
                        "leave it out, or name an endpoint of llama.cpp with provider openai";
                    problems.add(format!("{key}.grammar"), "is set for anthropic", remedy);
                }
            }
            Self::Scripted(settings) if settings.script.as_os_str().is_empty() => {
                problems.add(format!("{key}.script"), "is empty", "name the file to play");
            }
            Self::Scripted(_) => {}
        }
    }

    /// Returns the models that replace it.
    pub fn fallbacks(&self) -> &[String] {
        match self {
            Self::Openai(settings) | Self::Anthropic(settings) => &settings.fallbacks,
            Self::Scripted(_) => &[],
        }
    }
}

impl EndpointSettings {
    fn check(&self, key: &str, problems: &mut Problems) {
        if self.base_url.is_empty() {
            let remedy = "give the address above /chat/completions or /messages, such as \
                          https://api.openai.com/v1";
            problems.add(format!("{key}.base_url"), "is empty", remedy);
        }
        if self.model.is_empty() {
            problems.add(
                format!("{key}.model"),
                "is empty",
                "give the endpoint's name for the model",
            );
        }
        if self.api_key_env.is_some() && self.api_key_file.is_some() {
            problems.add(
                format!("{key}.api_key_file"),
                "is set beside api_key_env",
                "leave one of them out",
            );
        }
        for (name, value) in [
            ("connect_timeout", self.connect_timeout),
            ("first_token_timeout", self.first_token_timeout),
            ("token_gap_timeout", self.token_gap_timeout),
            ("total_timeout", self.total_timeout),
        ] {
            if value.is_zero() || value > Duration::from_secs(24 * 60 * 60) {
                problems.add(
                    format!("{key}.{name}"),
                    format!("is {}", settings::duration::print(value)),
                    "give a duration from 1ms to 24h",
                );
            }
        }
        if self.retries > 10 {
            problems.add(
                format!("{key}.retries"),
                format!("is {}", self.retries),
                "give a number from 0 to 10",
            );
        }
        if self.max_concurrent == 0 || self.max_concurrent > MAX_CONCURRENT {
            problems.add(
                format!("{key}.max_concurrent"),
                format!("is {}", self.max_concurrent),
                format!("give a number from 1 to {MAX_CONCURRENT}"),
            );
        }
        if self.requests_per_minute > MAX_PER_MINUTE {
            problems.add(
                format!("{key}.requests_per_minute"),
                format!("is {}", self.requests_per_minute),
                format!("give a number from 0 to {MAX_PER_MINUTE}"),
            );
        }
    }
}
