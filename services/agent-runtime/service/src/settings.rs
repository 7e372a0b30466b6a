//! The settings of an operator.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use agent_domain::budgets::Budgets;
use data_home::{DatabaseSettings, HomeSettings};
use grpc_kit::ServiceName;
use model_client::ModelSettings;
use run_events::{RetentionSettings, retention::check_age};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use settings::Problems;

/// Settings of the agent runtime.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AgentSettings {
    /// The server. Listens on 127.0.0.1:7405 by default.
    pub server: grpc_kit::ServerSettings,
    /// Logs and export.
    pub telemetry: telemetry::TelemetrySettings,
    /// The address of tool-registry. Default `http://127.0.0.1:7402`.
    pub registry: grpc_kit::ClientSettings,
    /// The address of workflow-execution. Default `http://127.0.0.1:7403`.
    pub workflow: grpc_kit::ClientSettings,
    /// The directory of stored turns. Default `data`.
    pub data_dir: PathBuf,
    /// The database in place of files in the data directory.
    pub database: DatabaseSettings,
    /// Times for which scenes and turns outside of conversations are kept after their end.
    pub retention: RetentionSettings,
    /// The time for which a conversation is kept, with its turns, after its last turn, message or change of a state,
    /// from `1s` to `3650d`; `0s` keeps it for ever. Default `30d`.
    #[serde(with = "settings::DurationText")]
    pub conversation_retention: Duration,
    /// The directory of agent profiles: `*.json` in it and `agent_profile.json` one level below.
    /// Default `deploy/agents`.
    pub agents_dir: PathBuf,
    /// The directory of scenes: `*.json` in it. Default `deploy/scenes`.
    pub scenes_dir: PathBuf,
    /// The directory of knowledge bases: `*.json` in it. Default `deploy/knowledge`.
    pub knowledge_dir: PathBuf,
    /// Whether the directories of profiles and knowledge bases are read again within two seconds when a file in them changes. Default true.
    pub follow_agents_dir: bool,
    /// The directory of scripted models. Default `deploy/models`.
    pub scripts_dir: PathBuf,
    /// The default model of agents; empty for none. Default empty.
    pub default_model: String,
    /// The address of the server for clients of A2A, written into the cards of agents, such as
    /// `https://agents.example.com`; empty if clients know it. Default empty.
    pub a2a_url: String,
    /// The models by name.
    pub models: BTreeMap<String, ModelSettings>,
    /// The default budgets of a turn.
    pub budgets: Budgets,
    /// The most turns at once; one more waits up to 1 s for room, in fair turns of the tenants, and is then rejected
    /// with `RESOURCE_EXHAUSTED`. Default 256.
    pub max_turns: usize,
    /// The most scenes at once; one more is rejected with `RESOURCE_EXHAUSTED`. Default 1000.
    pub max_scenes: usize,
    /// The bytes of earlier turns that a model is shown. Default `1MiB`, at most `3MiB`.
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
            workflow: grpc_kit::ClientSettings::to("http://127.0.0.1:7403"),
            data_dir: PathBuf::from("data"),
            database: DatabaseSettings::default(),
            retention: RetentionSettings::default(),
            conversation_retention: RetentionSettings::default().succeeded,
            agents_dir: PathBuf::from("deploy/agents"),
            scenes_dir: PathBuf::from("deploy/scenes"),
            knowledge_dir: PathBuf::from("deploy/knowledge"),
            follow_agents_dir: true,
            scripts_dir: PathBuf::from("deploy/models"),
            default_model: String::new(),
            a2a_url: String::new(),
            models: BTreeMap::new(),
            budgets: Budgets::default(),
            max_turns: 256,
            max_scenes: 1_000,
            history_bytes: 1 << 20,
        }
    }
}

impl settings::Settings for AgentSettings {
    const PREFIX: &'static str = "TAVERN_AGENT";

    const REPLACED: &'static [(&'static str, &'static str)] = grpc_kit::settings::REPLACED;

    fn check(&self, problems: &mut Problems) {
        self.database.check("database", problems);
        self.retention.check("retention", problems);
        check_age(
            "conversation_retention",
            self.conversation_retention,
            problems,
        );
        self.server
            .check_service("server", ServiceName::Agent, problems);
        self.telemetry.check("telemetry", problems);
        self.registry
            .check_beside("registry", (&self.server, ServiceName::Registry), problems);
        self.workflow
            .check_beside("workflow", (&self.server, ServiceName::Workflow), problems);
        self.check_own("", problems);
    }
}

impl AgentSettings {
    /// Returns the home of a process with this service alone.
    pub(crate) fn home(&self) -> HomeSettings {
        HomeSettings {
            directory: self.data_dir.clone(),
            database: self.database.clone(),
            services: "agent-runtime".to_owned(),
            address: self.server.listen.to_string(),
            migrations: vec![crate::SERVER_MIGRATIONS],
        }
    }

    /// Adds the problems of the agent runtime's own settings, with keys below `key` (empty, or
    /// ending with a dot).
    pub fn check_own(&self, key: &str, problems: &mut Problems) {
        for (name, model) in &self.models {
            let key = format!("{key}models.{name}");
            model.check(&key, problems);
            for unknown in model
                .fallbacks()
                .iter()
                .filter(|fallback| *fallback == name || !self.models.contains_key(*fallback))
            {
                problems.add(
                    format!("{key}.fallbacks"),
                    format!("names `{unknown}`, which is not another model"),
                    "name other models",
                );
            }
        }
        if !self.default_model.is_empty() && !self.models.contains_key(&self.default_model) {
            problems.add(
                format!("{key}default_model"),
                format!(
                    "is `{}`, which is not a configured model",
                    self.default_model
                ),
                "name one of the models, or leave it empty",
            );
        }
        for (name, value, most) in self.budgets.beyond_most() {
            problems.add(
                format!("{key}budgets.{name}"),
                format!("is {value}"),
                format!("give a number from 1 to {most}"),
            );
        }
        for (name, value) in [
            ("max_turns", self.max_turns),
            ("max_scenes", self.max_scenes),
        ] {
            if value == 0 || value > 100_000 {
                problems.add(
                    format!("{key}{name}"),
                    format!("is {value}"),
                    "give a number from 1 to 100000",
                );
            }
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

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    fn load(text: &str) -> Result<AgentSettings, String> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("agent.toml");
        std::fs::write(&file, text).unwrap();
        let none: [(OsString, OsString); 0] = [];
        settings::load_from(Some(&file), none, &[])
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
    fn models_of_every_kind_are_read_by_name() {
        let settings = load(
            "default_model = \"house\"\n[models.house]\nprovider = \"openai\"\nbase_url = \"http://x/v1\"\nmodel = \"m\"\ntoken_gap_timeout = \"9s\"\n\
             [models.other]\nprovider = \"anthropic\"\nbase_url = \"http://x/v1\"\nmodel = \"m\"\nfallbacks = [\"house\"]\n\
             [models.play]\nprovider = \"scripted\"\nscript = \"weather.script.json\"\n",
        )
        .unwrap();
        let ModelSettings::Openai(house) = &settings.models["house"] else {
            panic!("not openai")
        };
        assert_eq!(
            (house.token_gap_timeout, house.retries),
            (Duration::from_secs(9), 4)
        );
        assert!(matches!(
            &settings.models["other"],
            ModelSettings::Anthropic(other) if other.fallbacks == ["house"]
        ));
        assert!(matches!(
            &settings.models["play"],
            ModelSettings::Scripted(_)
        ));
    }

    #[test]
    fn everything_that_is_wrong_is_named_at_once() {
        let problems = load(
            "default_model = \"unknown\"\nhistory_bytes = \"9MiB\"\n[budgets]\ncalls = 5000\n\
             [models.house]\nprovider = \"openai\"\nretries = 99\nmax_concurrent = 0\n\
             fallbacks = [\"house\"]\napi_key_env = \"A\"\napi_key_file = \"b\"\n",
        )
        .unwrap_err();
        for part in [
            "default_model",
            "history_bytes",
            "budgets.calls",
            "models.house.base_url",
            "models.house.model",
            "models.house.retries",
            "models.house.max_concurrent",
            "models.house.fallbacks",
            "models.house.api_key_file",
        ] {
            assert!(problems.contains(part), "{part} is not in: {problems}");
        }
    }
}
