//! The settings of workflow-execution.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use data_home::{DatabaseSettings, HomeSettings};
use grpc_kit::{ClientSettings, ServerSettings, ServiceName};
use run_events::RetentionSettings;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use settings::Problems;
use telemetry::TelemetrySettings;

/// The longest batch window of events of a batched run.
const LONGEST_BATCH_WINDOW: Duration = Duration::from_secs(1);

/// Settings of workflow-execution; variables begin with `TAVERN_WORKFLOW__`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct WorkflowSettings {
    /// The server. Default address 127.0.0.1:7403.
    pub server: ServerSettings,
    /// Traces, metrics and logs.
    pub telemetry: TelemetrySettings,
    /// The tool registry. Default http://127.0.0.1:7402.
    pub registry: ClientSettings,
    /// The script sandbox. Default http://127.0.0.1:7404.
    pub sandbox: ClientSettings,
    /// The agent runtime, which has the models. Default http://127.0.0.1:7405.
    pub agent: ClientSettings,
    /// The time for which events of runs with batched durability wait for their commit, and so may
    /// be lost with the process. At most `1s`. Default `50ms`.
    #[serde(with = "settings::DurationText")]
    pub batch_window: Duration,
    /// The directory of saved definitions and runs. Default `data`.
    pub data_dir: PathBuf,
    /// The database in place of files in the data directory.
    pub database: DatabaseSettings,
    /// Times for which runs are kept after their end.
    pub retention: RetentionSettings,
    /// A directory of workflow files, `*.json`, which are read at the start and never written; the
    /// stem of a file's name is the id. Empty: none. Default `deploy/workflows`.
    pub workflows_dir: PathBuf,
    /// The most runs of the same depth of nesting that continue at once; more are queued. Default
    /// 1,024.
    pub max_active_runs: usize,
    /// The most queued runs of a tenant. Beyond it a start of the tenant is refused with a retry hint. Default 1,000.
    pub max_queued_runs: usize,
    /// The most further runs that wait for a time, a signal or a person at once. More of them count
    /// as runs that continue. Default 10,000.
    pub max_waiting_runs: usize,
    /// The time for which a run that only waits stays in memory before it rests in its log. Default
    /// `1s`.
    #[serde(with = "settings::DurationText")]
    pub rest_after: Duration,
    /// The most tools, scripts and models that one run waits for at once; more nodes wait. Default
    /// 16.
    pub max_effects_per_run: usize,
    /// The most tools, scripts and models that all runs of the same depth of nesting wait for at
    /// once; more nodes wait. Default 256.
    pub max_effects: usize,
    /// The most nodes of a type that all runs of the same depth of nesting wait for at once, by the
    /// full type, such as `"core:Script" = 8`; more nodes wait. Default: none.
    pub max_effects_by_type: BTreeMap<String, usize>,
}

impl Default for WorkflowSettings {
    fn default() -> Self {
        Self {
            server: ServerSettings {
                listen: std::net::SocketAddr::from(([127, 0, 0, 1], 7403)),
                ..ServerSettings::default()
            },
            telemetry: TelemetrySettings::default(),
            registry: ClientSettings::to("http://127.0.0.1:7402"),
            sandbox: ClientSettings::to("http://127.0.0.1:7404"),
            agent: ClientSettings::to("http://127.0.0.1:7405"),
            batch_window: Duration::from_millis(50),
            data_dir: PathBuf::from("data"),
            database: DatabaseSettings::default(),
            retention: RetentionSettings::default(),
            workflows_dir: PathBuf::from("deploy/workflows"),
            max_active_runs: 1_024,
            max_queued_runs: 1_000,
            max_waiting_runs: 10_000,
            rest_after: Duration::from_secs(1),
            max_effects_per_run: 16,
            max_effects: 256,
            max_effects_by_type: BTreeMap::new(),
        }
    }
}

impl WorkflowSettings {
    /// Returns the home of a process with this service alone.
    pub(crate) fn home(&self) -> HomeSettings {
        HomeSettings {
            directory: self.data_dir.clone(),
            database: self.database.clone(),
            services: "workflow-execution".to_owned(),
            address: self.server.listen.to_string(),
            migrations: vec![crate::SERVER_MIGRATIONS],
        }
    }
}

impl settings::Settings for WorkflowSettings {
    const PREFIX: &'static str = "TAVERN_WORKFLOW";

    const REPLACED: &'static [(&'static str, &'static str)] = grpc_kit::settings::REPLACED;

    fn check(&self, problems: &mut Problems) {
        self.database.check("database", problems);
        if self.batch_window > LONGEST_BATCH_WINDOW {
            let given = format!("is {:?}", self.batch_window);
            problems.add("batch_window", given, "give at most 1s");
        }
        for (full_type, most) in &self.max_effects_by_type {
            let key = format!("max_effects_by_type.{full_type}");
            if workflow_nodes::builtin().get(full_type).is_none() {
                problems.add(
                    &key,
                    "is not a node type",
                    "give the full type of a node, such as core:Script",
                );
            } else if !(1..=100_000).contains(most) {
                problems.add(&key, format!("is {most}"), "give a number from 1 to 100000");
            }
        }
        self.retention.check("retention", problems);
        self.server
            .check_service("server", ServiceName::Workflow, problems);
        self.telemetry.check("telemetry", problems);
        self.registry
            .check_beside("registry", (&self.server, ServiceName::Registry), problems);
        self.sandbox
            .check_beside("sandbox", (&self.server, ServiceName::Sandbox), problems);
        self.agent
            .check_beside("agent", (&self.server, ServiceName::Agent), problems);
        for (key, value, most) in [
            ("max_active_runs", self.max_active_runs, 100_000),
            ("max_queued_runs", self.max_queued_runs, 100_000),
            ("max_waiting_runs", self.max_waiting_runs, 1_000_000),
            // One append to the log takes the starts of all of them.
            ("max_effects_per_run", self.max_effects_per_run, 256),
            ("max_effects", self.max_effects, 100_000),
        ] {
            if !(1..=most).contains(&value) {
                problems.add(
                    key,
                    format!("is {value}"),
                    format!("give a number from 1 to {most}"),
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_accepted_and_bounds_are_checked() {
        let none = std::iter::empty::<(std::ffi::OsString, std::ffi::OsString)>();
        let loaded = settings::load_from::<WorkflowSettings>(None, none, &[]).unwrap();
        assert_eq!(loaded.settings.server.listen.port(), 7403);
        let zero = [("TAVERN_WORKFLOW__MAX_EFFECTS".into(), "0".into())];
        let error = settings::load_from::<WorkflowSettings>(None, zero, &[]).unwrap_err();
        assert!(error.to_string().contains("max_effects"), "{error}");
    }

    #[test]
    fn limits_are_set_for_types_that_there_are() {
        let problems = |full_type: &str, most: usize| {
            let limits = BTreeMap::from([(full_type.to_owned(), most)]);
            let settings = WorkflowSettings {
                max_effects_by_type: limits,
                ..WorkflowSettings::default()
            };
            let mut problems = Problems::default();
            settings::Settings::check(&settings, &mut problems);
            !problems.is_empty()
        };
        assert!(!problems("core:Script", 8));
        assert!(problems("core:Script", 0) && problems("core:Skript", 8));
    }
}
