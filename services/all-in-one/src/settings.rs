//! Settings of all services in one process.

use std::ffi::OsString;
use std::path::PathBuf;

use agent_runtime::AgentSettings;
use data_home::{DatabaseSettings, HomeSettings};
use gateway::GatewaySettings;
use grpc_kit::{Callers, ServerSettings};
use schemars::JsonSchema;
use script_sandbox::SandboxSettings;
use serde::{Deserialize, Serialize};
use settings::{Loaded, Problem, Problems, SettingsError, Source};
use sql_store::Migrations;
use telemetry::TelemetrySettings;
use tool_registry::RegistrySettings;
use workflow_execution::WorkflowSettings;

/// The directory of blobs in the data directory.
pub const BLOBS: &str = "blobs";

/// Settings of the process; environment variables begin with `TAVERN__`.
///
/// The settings of one service are made as for its single program: by its own environment
/// variables, such as `TAVERN_SANDBOX__LOWEST_ISOLATION`, or in the file `<service>.toml` of the
/// deploy directory.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TavernSettings {
    /// The address and the bounds of the server, which all services share. Default: 127.0.0.1:7401.
    pub server: ServerSettings,
    /// Logs, traces and metrics.
    pub telemetry: TelemetrySettings,
    /// The data directory. Default: `data`.
    pub data_dir: PathBuf,
    /// The database, in place of files in the data directory, which has only copies and package sets then.
    pub database: DatabaseSettings,
    /// The directory with `plugins`, `workflows`, `agents`, `scenes` and `models`. Default: `deploy`.
    pub deploy_dir: PathBuf,
    /// The directory of package sets, the libraries of scripts. Default: `packages` in the data directory.
    pub packages_dir: PathBuf,
    /// The file with the rules for approvals and the people who decide. Default: `approvals.json` in
    /// the deploy directory, if it exists.
    pub approvals_file: PathBuf,
    /// Whether to start without any plugin, whatever is installed. Default: false.
    pub without_plugins: bool,
}

impl Default for TavernSettings {
    fn default() -> Self {
        Self {
            server: ServerSettings {
                listen: ([127, 0, 0, 1], 7401).into(),
                ..ServerSettings::default()
            },
            telemetry: TelemetrySettings::default(),
            data_dir: PathBuf::from("data"),
            database: DatabaseSettings::default(),
            deploy_dir: PathBuf::from("deploy"),
            packages_dir: PathBuf::new(),
            approvals_file: PathBuf::new(),
            without_plugins: false,
        }
    }
}

impl settings::Settings for TavernSettings {
    const PREFIX: &'static str = "TAVERN";

    const REPLACED: &'static [(&'static str, &'static str)] = grpc_kit::settings::REPLACED;

    fn check(&self, problems: &mut Problems) {
        self.database.check("database", problems);
        self.server.check("server", Callers::Clients, problems);
        self.telemetry.check("telemetry", problems);
    }
}

/// The services with tables and logs.
const SERVICES: [&str; 3] = ["tool-registry", "workflow-execution", "agent-runtime"];

/// The tables of these services at a server.
pub const MIGRATIONS: [Migrations; 3] = [
    tool_registry::SERVER_MIGRATIONS,
    workflow_execution::SERVER_MIGRATIONS,
    agent_runtime::SERVER_MIGRATIONS,
];

/// The prefixes of the settings that the process gives its services, whatever their values.
const GIVEN: [&str; 18] = [
    "server.",
    "telemetry.",
    "data_dir",
    "database.",
    "plugins_dir",
    "approvals_file",
    "workflows_dir",
    "agents_dir",
    "scenes_dir",
    "knowledge_dir",
    "scripts_dir",
    "blobs.directory",
    "packages_directory",
    "registry.",
    "workflow.",
    "sandbox.",
    "agent.",
    "deploy_dir",
];

fn is_given(key: &str) -> bool {
    GIVEN.iter().any(|given| key.starts_with(given))
}

/// Returns a problem for each variable of a service that sets a value given by the process.
fn without_effect(prefix: &str, vars: impl Iterator<Item = (OsString, OsString)>) -> Vec<Problem> {
    let names = vars.filter_map(|(name, _)| name.into_string().ok());
    let problem = |name: String| {
        let key = name.strip_prefix(prefix)?.strip_prefix("__")?;
        let key = key.to_lowercase().replace("__", ".");
        is_given(&key).then(|| Problem {
            key,
            source: Source::Environment(name),
            what: "has no effect on a service in this process".to_owned(),
            remedy: "remove it; `TAVERN__…` sets it for the process as a whole".to_owned(),
        })
    };
    names.filter_map(problem).collect()
}

/// The settings of every service.
#[derive(Clone, Debug)]
pub(crate) struct ServiceSettings {
    pub(crate) gateway: GatewaySettings,
    pub(crate) registry: RegistrySettings,
    pub(crate) workflow: WorkflowSettings,
    pub(crate) sandbox: SandboxSettings,
    pub(crate) agent: AgentSettings,
}

impl TavernSettings {
    /// Reads the settings of every service and points them to the directories of this process.
    ///
    /// # Errors
    /// [`SettingsError`] has every fault of all of them.
    pub(crate) fn services(&self) -> Result<ServiceSettings, SettingsError> {
        let mut wrong = SettingsError {
            problems: Vec::new(),
        };
        let gateway = self.load("gateway", &mut wrong);
        let registry = self.load("tool-registry", &mut wrong);
        let workflow = self.load("workflow-execution", &mut wrong);
        let sandbox = self.load("script-sandbox", &mut wrong);
        let agent = self.load("agent-runtime", &mut wrong);
        let (Some(gateway), Some(registry), Some(workflow), Some(sandbox), Some(agent)) =
            (gateway, registry, workflow, sandbox, agent)
        else {
            return Err(wrong);
        };
        if !wrong.problems.is_empty() {
            return Err(wrong);
        }
        let mut services = ServiceSettings {
            gateway,
            registry,
            workflow,
            sandbox,
            agent,
        };
        services.registry.data_dir = self.data_dir.clone();
        services.workflow.data_dir = self.data_dir.clone();
        services.agent.data_dir = self.data_dir.clone();
        services.sandbox.blobs.directory = self.data_dir.join(self.blobs());
        services.sandbox.packages_directory = self.packages_dir();
        services.registry.plugins_dir = self.deploy_dir.join("plugins");
        services.registry.approvals_file = self.approvals_file();
        services.registry.without_plugins |= self.without_plugins;
        services.workflow.workflows_dir = self.deploy_dir.join("workflows");
        services.agent.agents_dir = self.deploy_dir.join("agents");
        services.agent.scenes_dir = self.deploy_dir.join("scenes");
        services.agent.knowledge_dir = self.deploy_dir.join("knowledge");
        services.agent.scripts_dir = self.deploy_dir.join("models");
        Ok(services)
    }

    /// Returns the name of the directory of blobs, or of their copies where they are at a server.
    fn blobs(&self) -> &'static str {
        match self.database.address.is_empty() {
            true => BLOBS,
            false => "blob-copies",
        }
    }

    /// Returns the home of the tables and logs of all services.
    pub fn home(&self) -> HomeSettings {
        HomeSettings {
            directory: self.data_dir.clone(),
            database: self.database.clone(),
            services: SERVICES.join(","),
            address: self.server.listen.to_string(),
            migrations: MIGRATIONS.to_vec(),
        }
    }

    /// Returns the directory of package sets.
    pub fn packages_dir(&self) -> PathBuf {
        match self.packages_dir.as_os_str().is_empty() {
            true => self.data_dir.join("packages"),
            false => self.packages_dir.clone(),
        }
    }

    /// Returns the settings of the sandbox, for commands that work without a server.
    ///
    /// # Errors
    /// [`SettingsError`] has every fault of them.
    pub fn sandbox(&self) -> Result<SandboxSettings, SettingsError> {
        let file = self.file_of("script-sandbox");
        let loaded = settings::load::<SandboxSettings>(file.as_deref(), &[])?;
        Ok(SandboxSettings {
            packages_directory: self.packages_dir(),
            ..loaded.settings
        })
    }

    /// Returns the file with rules and approvers; empty if there is none.
    pub fn approvals_file(&self) -> PathBuf {
        let shipped = self.deploy_dir.join("approvals.json");
        match self.approvals_file.as_os_str().is_empty() && shipped.is_file() {
            true => shipped,
            false => self.approvals_file.clone(),
        }
    }

    fn describe_service<S: settings::Settings>(
        &self,
        service: &str,
    ) -> Result<String, SettingsError> {
        let loaded = settings::load::<S>(self.file_of(service).as_deref(), &[])?;
        Ok(loaded.effective(service, |key| !is_given(key)))
    }

    fn file_of(&self, service: &str) -> Option<PathBuf> {
        let file = self.deploy_dir.join(service).with_extension("toml");
        file.exists().then_some(file)
    }

    /// Checks the settings of every service.
    ///
    /// # Errors
    /// [`SettingsError`] has every fault of all of them.
    pub fn check_services(&self) -> Result<(), SettingsError> {
        self.services().map(drop)
    }

    fn load<S: settings::Settings>(&self, service: &str, wrong: &mut SettingsError) -> Option<S> {
        let file = self.file_of(service);
        wrong.merge(SettingsError {
            problems: without_effect(S::PREFIX, std::env::vars_os()),
        });
        match settings::load::<S>(file.as_deref(), &[]) {
            Ok(loaded) => Some(loaded.settings),
            Err(error) => {
                wrong.merge(error);
                None
            }
        }
    }
}

/// Returns the settings in force of the process and of every service, with the meaning, the source and the
/// default of each. Directories and addresses that the process gives its services are not repeated
/// with theirs.
///
/// # Errors
/// [`SettingsError`] has every fault of all of them.
pub fn describe(process: &Loaded<TavernSettings>) -> Result<String, SettingsError> {
    let settings = &process.settings;
    let parts = [
        process.effective("tavern", |_| true),
        settings.describe_service::<GatewaySettings>("gateway")?,
        settings.describe_service::<RegistrySettings>("tool-registry")?,
        settings.describe_service::<WorkflowSettings>("workflow-execution")?,
        settings.describe_service::<SandboxSettings>("script-sandbox")?,
        settings.describe_service::<AgentSettings>("agent-runtime")?,
    ];
    Ok(parts.join("\n"))
}
