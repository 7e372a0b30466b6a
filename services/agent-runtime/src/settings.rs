//! What an operator can choose.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use settings::Problems;

use crate::domain::plan::Budgets;

/// Settings of the agent runtime.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AgentSettings {
    /// The server. Listens on 127.0.0.1:7405 by default.
    pub server: grpc_kit::ServerSettings,
    /// Logs and export.
    pub telemetry: telemetry::TelemetrySettings,
    /// Where tool-registry is. Default `http://127.0.0.1:7402`.
    pub registry: grpc_kit::ClientSettings,
    /// Where turns are stored. Default `data`.
    pub data_dir: PathBuf,
    /// Where agent profiles are: `*.json` in it and `agent_profile.json` one level below. Default
    /// `deploy/agents`.
    pub agents_dir: PathBuf,
    /// Where the files of scripted models are. Default `deploy/models`.
    pub scripts_dir: PathBuf,
    /// The model of agents that name none; empty for none. Default empty.
    pub default_model: String,
    /// The models by name.
    pub models: BTreeMap<String, ModelSettings>,
    /// What a turn may use when its caller does not say.
    pub budgets: Budgets,
    /// Turns at once; one more is refused with `RESOURCE_EXHAUSTED`. Default 256.
    pub max_turns: usize,
    /// How much of the earlier turns a model is shown. Default `1MiB`, at most `3MiB`.
    #[serde(with = "settings::SizeText")]
    pub history_bytes: usize,
}

impl Default for AgentSettings {
    fn default() -> Self {
        let server = grpc_kit::ServerSettings {
            listen: std::net::SocketAddr::from(([127, 0, 0, 1], 7405)),
            ..grpc_kit::ServerSettings::default()
        };
        Self {
            server,
            telemetry: telemetry::TelemetrySettings::default(),
            registry: grpc_kit::ClientSettings::to("http://127.0.0.1:7402"),
            data_dir: PathBuf::from("data"),
            agents_dir: PathBuf::from("deploy/agents"),
            scripts_dir: PathBuf::from("deploy/models"),
            default_model: String::new(),
            models: BTreeMap::new(),
            budgets: Budgets::default(),
            max_turns: 256,
            history_bytes: 1 << 20,
        }
    }
}

impl settings::Settings for AgentSettings {
    const PREFIX: &'static str = "TAVERN_AGENT";

    fn check(&self, problems: &mut Problems) {
        self.server.check("server", problems);
        self.telemetry.check("telemetry", problems);
        self.registry.check("registry", problems);
        self.check_own("", problems);
    }
}

impl AgentSettings {
    /// Adds everything that is wrong with what is the agent runtime's own, with keys below `key`
    /// (empty, or ending with a dot).
    pub fn check_own(&self, key: &str, problems: &mut Problems) {
        for (name, model) in &self.models {
            model.check(&format!("{key}models.{name}"), problems);
        }
        if !self.default_model.is_empty() && !self.models.contains_key(&self.default_model) {
            problems.add(
                format!("{key}default_model"),
                format!("is `{}`, which is no model", self.default_model),
                "name one of the models, or leave it empty",
            );
        }
        let most = Budgets::MOST;
        for (name, value, most) in [
            ("iterations", self.budgets.iterations, most.iterations),
            (
                "calls_per_response",
                self.budgets.calls_per_response,
                most.calls_per_response,
            ),
            ("calls", self.budgets.calls, most.calls),
        ] {
            if value == 0 || value > most {
                problems.add(
                    format!("{key}budgets.{name}"),
                    format!("is {value}"),
                    format!("give a number from 1 to {most}"),
                );
            }
        }
        if self.max_turns == 0 || self.max_turns > 100_000 {
            problems.add(
                format!("{key}max_turns"),
                format!("is {}", self.max_turns),
                "give a number from 1 to 100000",
            );
        }
        if self.history_bytes > 3 << 20 {
            problems.add(
                format!("{key}history_bytes"),
                format!("is {}", settings::size::print(self.history_bytes)),
                "give at most 3MiB",
            );
        }
    }
}

/// One model.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "provider", rename_all = "lowercase")]
pub enum ModelSettings {
    /// An OpenAI-compatible endpoint.
    Openai(OpenAiSettings),
    /// A file that is played.
    Scripted(ScriptedSettings),
}

/// A model behind an OpenAI-compatible endpoint.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OpenAiSettings {
    /// The address above `/chat/completions`, such as `https://api.openai.com/v1`.
    pub base_url: String,
    /// The endpoint's own name for the model.
    pub model: String,
    /// The environment variable with the key; no key is sent if missing.
    pub api_key_env: Option<String>,
    /// How long connecting may take. Default `5s`.
    #[serde(with = "settings::DurationText")]
    pub connect_timeout: Duration,
    /// How long the endpoint may take to begin its answer. Default `60s`.
    #[serde(with = "settings::DurationText")]
    pub first_byte_timeout: Duration,
    /// How long the endpoint may be silent within its answer. Default `60s`.
    #[serde(with = "settings::DurationText")]
    pub idle_timeout: Duration,
    /// How long the whole answer may take, waits included. Default `5m`.
    #[serde(with = "settings::DurationText")]
    pub total_timeout: Duration,
    /// How often a request that was answered with 429 or 503 is sent again. Default 4.
    pub retries: u32,
    /// The longest that the endpoint may ask to wait; a longer wait fails at once. Default `30s`.
    #[serde(with = "settings::DurationText")]
    pub retry_after_limit: Duration,
    /// Sends requests through the proxy that the environment names. Default false.
    pub use_system_proxy: bool,
}

impl Default for OpenAiSettings {
    fn default() -> Self {
        Self {
            base_url: String::new(),
            model: String::new(),
            api_key_env: None,
            connect_timeout: Duration::from_secs(5),
            first_byte_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(60),
            total_timeout: Duration::from_secs(300),
            retries: 4,
            retry_after_limit: Duration::from_secs(30),
            use_system_proxy: false,
        }
    }
}

/// A model that plays a file.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ScriptedSettings {
    /// The file, beneath `scripts_dir`.
    pub script: PathBuf,
}

impl ModelSettings {
    fn check(&self, key: &str, problems: &mut Problems) {
        match self {
            Self::Openai(settings) => settings.check(key, problems),
            Self::Scripted(settings) if settings.script.as_os_str().is_empty() => {
                problems.add(format!("{key}.script"), "is empty", "name the file to play");
            }
            Self::Scripted(_) => {}
        }
    }
}

impl OpenAiSettings {
    fn check(&self, key: &str, problems: &mut Problems) {
        if self.base_url.is_empty() {
            let remedy =
                "give the address above /chat/completions, such as https://api.openai.com/v1";
            problems.add(format!("{key}.base_url"), "is empty", remedy);
        }
        if self.model.is_empty() {
            problems.add(
                format!("{key}.model"),
                "is empty",
                "give the endpoint's name for the model",
            );
        }
        for (name, value) in [
            ("connect_timeout", self.connect_timeout),
            ("first_byte_timeout", self.first_byte_timeout),
            ("idle_timeout", self.idle_timeout),
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
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    fn load(text: &str) -> Result<AgentSettings, String> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("agent.toml");
        std::fs::write(&file, text).unwrap();
        let none: [(OsString, OsString); 0] = [];
        settings::load_from(Some(&file), none)
            .map(|loaded| loaded.settings)
            .map_err(|error| {
                error
                    .problems
                    .iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
                    .join("\n")
            })
    }

    #[test]
    fn models_of_both_kinds_are_read_by_name() {
        let settings = load(
            "default_model = \"house\"\n[models.house]\nprovider = \"openai\"\nbase_url = \"http://x/v1\"\nmodel = \"m\"\nidle_timeout = \"9s\"\n\
             [models.play]\nprovider = \"scripted\"\nscript = \"weather.script.json\"\n",
        )
        .unwrap();
        let ModelSettings::Openai(house) = &settings.models["house"] else {
            panic!("not openai")
        };
        assert_eq!(
            (house.idle_timeout, house.retries),
            (Duration::from_secs(9), 4)
        );
        assert!(matches!(
            &settings.models["play"],
            ModelSettings::Scripted(_)
        ));
    }

    #[test]
    fn everything_that_is_wrong_is_named_at_once() {
        let problems = load(
            "default_model = \"unknown\"\nhistory_bytes = \"9MiB\"\n[budgets]\ncalls = 5000\n\
             [models.house]\nprovider = \"openai\"\nretries = 99\n",
        )
        .unwrap_err();
        for part in [
            "default_model",
            "history_bytes",
            "budgets.calls",
            "models.house.base_url",
            "models.house.model",
            "models.house.retries",
        ] {
            assert!(problems.contains(part), "{part} is not in: {problems}");
        }
    }
}
