//! Settings of the tool registry.

mod issuers;

use std::{path::PathBuf, time::Duration};

use data_home::{DatabaseSettings, HomeSettings};
use grpc_kit::{ClientSettings, ServerSettings, ServiceName};
use run_events::RetentionSettings;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use settings::Problems;
use telemetry::TelemetrySettings;

pub use issuers::{IssuerSettings, RuleSettings};

use workspace_store::WorkspaceLimits;

use crate::{audit::AuditSettings, dispatch::backend::AllowedHosts, runner::calls::CallLimits};

const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// Settings of the tool registry; environment variables begin with `TAVERN_REGISTRY__`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RegistrySettings {
    /// The gRPC server. Default address: 127.0.0.1:7402.
    pub server: ServerSettings,
    /// Logs, traces and metrics.
    pub telemetry: TelemetrySettings,
    /// The directory of databases and workspaces. Default: `data/tool-registry`.
    pub data_dir: PathBuf,
    /// The database in place of files in the data directory.
    pub database: DatabaseSettings,
    /// Times for which invocations, entries of the ledger and approvals are kept after their end.
    pub retention: RetentionSettings,
    /// The audit of administrative changes and denials.
    pub audit: AuditSettings,
    /// The directory of plugins; empty for none. Default: none.
    pub plugins_dir: PathBuf,
    /// The address of workflow-execution. Default: http://127.0.0.1:7403.
    pub workflow: ClientSettings,
    /// Whether to start without any plugin, whatever is installed. Default: false.
    pub without_plugins: bool,
    /// The address of script-sandbox. Default: http://127.0.0.1:7404.
    pub sandbox: ClientSettings,
    /// The address of agent-runtime, for the tools on private states. Default:
    /// http://127.0.0.1:7405.
    pub agent: ClientSettings,
    /// Hosts on which `PutBackend` may add a gRPC server, each as `host` or `host:port`, beside loopback for the
    /// tenants `default` and `system`. They are for all tenants. Default: none.
    pub backend_hosts: Vec<String>,
    /// The PEM file with the CAs of gRPC servers at `https` addresses. It is read again when it changes. Default: the CAs
    /// of this machine.
    pub backend_ca: PathBuf,
    /// The limits of the workspace of a conversation.
    pub workspace: WorkspaceLimits,
    /// The interpreter of code that models write.
    pub code_interpreter: CodeInterpreterSettings,
    /// The file with the rules for approvals and the people who decide; empty for none: then calls of
    /// destructive tools are refused. Default: none.
    pub approvals_file: PathBuf,
    /// Issuers whose tokens prove principals. With one, no caller is `local` with every permission. Default: none.
    pub issuers: Vec<IssuerSettings>,
    /// The time after the end of its last token for which the roles of a principal count for its runs and schedules.
    /// Default: 1d.
    #[serde(with = "settings::DurationText")]
    pub token_rights: Duration,
    /// The timeout of a tool that has none of its own. Default: 60s.
    #[serde(with = "settings::DurationText")]
    pub tool_timeout: Duration,
    /// Calls in flight at once; more are refused with a hint to try again. Default: 1024.
    pub max_calls: usize,
    /// The longest time for which calls in flight may continue when the service ends. Calls left
    /// then are decided by the ledger after the next start. Default: 5s.
    #[serde(with = "settings::DurationText")]
    pub drain_calls: Duration,
}

/// Settings of the interpreter of code that models write.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CodeInterpreterSettings {
    /// The package sets that code takes which names none: of each runtime the first that is built. Default: data.
    pub packages: Vec<String>,
}

impl Default for CodeInterpreterSettings {
    fn default() -> Self {
        Self {
            packages: vec!["data".to_owned()],
        }
    }
}

impl Default for RegistrySettings {
    fn default() -> Self {
        Self {
            server: ServerSettings {
                listen: ([127, 0, 0, 1], 7402).into(),
                ..ServerSettings::default()
            },
            telemetry: TelemetrySettings::default(),
            data_dir: PathBuf::from("data/tool-registry"),
            database: DatabaseSettings::default(),
            retention: RetentionSettings::default(),
            audit: AuditSettings::default(),
            plugins_dir: PathBuf::new(),
            without_plugins: false,
            workflow: ClientSettings::to("http://127.0.0.1:7403"),
            sandbox: ClientSettings::to("http://127.0.0.1:7404"),
            agent: ClientSettings::to("http://127.0.0.1:7405"),
            backend_hosts: Vec::new(),
            backend_ca: PathBuf::new(),
            workspace: WorkspaceLimits::default(),
            code_interpreter: CodeInterpreterSettings::default(),
            approvals_file: PathBuf::new(),
            issuers: Vec::new(),
            token_rights: LONGEST,
            tool_timeout: Duration::from_secs(60),
            max_calls: 1_024,
            drain_calls: Duration::from_secs(5),
        }
    }
}

impl RegistrySettings {
    /// Returns the home of a process with this service alone.
    pub(crate) fn home(&self) -> HomeSettings {
        HomeSettings {
            directory: self.data_dir.clone(),
            database: self.database.clone(),
            services: "tool-registry".to_owned(),
            address: self.server.listen.to_string(),
            migrations: vec![crate::SERVER_MIGRATIONS],
        }
    }

    /// Returns the hosts on which gRPC servers may be registered, with the CAs of their `https` addresses.
    pub(crate) fn allowed_hosts(&self) -> AllowedHosts {
        AllowedHosts::new(&self.backend_hosts).believing(self.backend_ca.clone())
    }

    /// Returns the limits of calls.
    pub fn call_limits(&self) -> CallLimits {
        CallLimits {
            tool_timeout: self.tool_timeout,
            in_flight: self.max_calls,
            drain: self.drain_calls,
        }
    }
}

impl settings::Settings for RegistrySettings {
    const PREFIX: &'static str = "TAVERN_REGISTRY";

    const REPLACED: &'static [(&'static str, &'static str)] = grpc_kit::settings::REPLACED;

    fn check(&self, problems: &mut Problems) {
        self.database.check("database", problems);
        self.retention.check("retention", problems);
        self.audit.check(problems);
        self.server
            .check_service("server", ServiceName::Registry, problems);
        self.telemetry.check("telemetry", problems);
        self.workflow
            .check_beside("workflow", (&self.server, ServiceName::Workflow), problems);
        self.sandbox
            .check_beside("sandbox", (&self.server, ServiceName::Sandbox), problems);
        self.agent
            .check_beside("agent", (&self.server, ServiceName::Agent), problems);
        if self.data_dir.as_os_str().is_empty() {
            problems.add("data_dir", "is empty", "name a directory");
        }
        if !self.backend_ca.as_os_str().is_empty()
            && let Err(error) = self.allowed_hosts().connector()
        {
            let problem = format!("cannot be used: {}", grpc_kit::failure::chain(&error));
            problems.add("backend_ca", problem, "name a file with CAs in PEM");
        }
        if self.tool_timeout.is_zero() || self.tool_timeout > LONGEST {
            problems.add(
                "tool_timeout",
                "is out of range",
                "give a time from 1ms to 1d",
            );
        }
        if self.drain_calls > Duration::from_secs(10 * 60) {
            problems.add("drain_calls", "is out of range", "give a time up to 10m");
        }
        if !(1..=65_536).contains(&self.max_calls) {
            problems.add(
                "max_calls",
                "is out of range",
                "give a number from 1 to 65536",
            );
        }
        for host in self
            .backend_hosts
            .iter()
            .filter(|host| !AllowedHosts::is_valid(host))
        {
            problems.add(
                "backend_hosts",
                format!("has the entry '{host}', which is not a host"),
                "write each entry as host or host:port",
            );
        }
        if self.token_rights > 30 * LONGEST {
            problems.add("token_rights", "is out of range", "give a time up to 30d");
        }
        issuers::check(&self.issuers, problems);
        self.check_workspace(problems);
    }
}

impl RegistrySettings {
    fn check_workspace(&self, problems: &mut Problems) {
        let limits = &self.workspace;
        let counts = [
            ("workspace.file_bytes", limits.file_bytes, 64 << 20),
            ("workspace.total_bytes", limits.total_bytes, 1 << 40),
            ("workspace.entries", limits.entries, 1_000_000),
            ("workspace.read_bytes", limits.read_bytes, 512 << 10),
            ("workspace.listing", limits.listing, 4_000),
        ];
        for (key, value, most) in counts {
            if value == 0 || value > most {
                problems.add(
                    key,
                    "is out of range",
                    format!("give a value from 1 to {most}"),
                );
            }
        }
    }
}
