//! Settings of all services in one process.

use std::path::{Path, PathBuf};

use agent_runtime::AgentSettings;
use gateway::GatewaySettings;
use grpc_kit::ServerSettings;
use script_sandbox::SandboxSettings;
use serde::{Deserialize, Serialize};
use settings::{Problems, SettingsError};
use telemetry::TelemetrySettings;
use tool_registry::RegistrySettings;
use workflow_execution::WorkflowSettings;

/// Settings of the process; environment variables begin with `TAVERN__`.
///
/// What belongs to one service is set as for its single program: by its own environment variables,
/// such as `TAVERN_SANDBOX__LOWEST_ISOLATION`, or in the file `<service>.toml` of the deploy
/// directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct TavernSettings {
    /// Where and how to listen; all services share the address. Default: 127.0.0.1:7401.
    pub server: ServerSettings,
    /// Logs, traces and metrics.
    pub telemetry: TelemetrySettings,
    /// Where data are kept. Default: `data`.
    pub data_dir: PathBuf,
    /// The directory with `plugins`, `workflows`, `agents` and `models`. Default: `deploy`.
    pub deploy_dir: PathBuf,
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
            deploy_dir: PathBuf::from("deploy"),
        }
    }
}

impl settings::Settings for TavernSettings {
    const PREFIX: &'static str = "TAVERN";

    fn check(&self, problems: &mut Problems) {
        self.server.check("server", problems);
        self.telemetry.check("telemetry", problems);
    }
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
    /// [`SettingsError`] has everything that is wrong with any of them.
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
        services.sandbox.blobs.directory = self.data_dir.join("blobs");
        services.registry.plugins_dir = self.deploy_dir.join("plugins");
        services.workflow.workflows_dir = self.deploy_dir.join("workflows");
        services.agent.agents_dir = self.deploy_dir.join("agents");
        services.agent.scripts_dir = self.deploy_dir.join("models");
        Ok(services)
    }

    /// Checks the settings of every service.
    ///
    /// # Errors
    /// [`SettingsError`] has everything that is wrong with any of them.
    pub fn check_services(&self) -> Result<(), SettingsError> {
        self.services().map(drop)
    }

    fn load<S: settings::Settings>(&self, service: &str, wrong: &mut SettingsError) -> Option<S> {
        let file = self.deploy_dir.join(service).with_extension("toml");
        let file: Option<&Path> = file.exists().then_some(file.as_path());
        match settings::load::<S>(file) {
            Ok(loaded) => Some(loaded.settings),
            Err(error) => {
                wrong.merge(error);
                None
            }
        }
    }
}
