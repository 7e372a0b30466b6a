//! Settings of the gateway.

use grpc_kit::{ClientSettings, ServerSettings};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use settings::Problems;
use telemetry::TelemetrySettings;

/// The largest text that can be allowed, in bytes.
const MOST_TEXT: usize = 1024 * 1024;

/// Settings of the gateway; environment variables begin with `TAVERN_GATEWAY__`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GatewaySettings {
    /// Where and how to listen. Default address: 127.0.0.1:7401.
    pub server: ServerSettings,
    /// Logs, traces and metrics.
    pub telemetry: TelemetrySettings,
    /// Where tool-registry is. Default: http://127.0.0.1:7402.
    pub registry: ClientSettings,
    /// Where workflow-execution is. Default: http://127.0.0.1:7403.
    pub workflow: ClientSettings,
    /// Where agent-runtime is. Default: http://127.0.0.1:7405.
    pub agent: ClientSettings,
    /// The largest text that is read, in bytes. Default and most: 1MiB.
    #[serde(with = "settings::SizeText")]
    pub max_text: usize,
}

impl Default for GatewaySettings {
    fn default() -> Self {
        Self {
            server: ServerSettings {
                listen: ([127, 0, 0, 1], 7401).into(),
                ..ServerSettings::default()
            },
            telemetry: TelemetrySettings::default(),
            registry: ClientSettings::to("http://127.0.0.1:7402"),
            workflow: ClientSettings::to("http://127.0.0.1:7403"),
            agent: ClientSettings::to("http://127.0.0.1:7405"),
            max_text: MOST_TEXT,
        }
    }
}

impl settings::Settings for GatewaySettings {
    const PREFIX: &'static str = "TAVERN_GATEWAY";

    fn check(&self, problems: &mut Problems) {
        self.server.check("server", problems);
        self.telemetry.check("telemetry", problems);
        self.registry.check("registry", problems);
        self.workflow.check("workflow", problems);
        self.agent.check("agent", problems);
        if !(1..=MOST_TEXT).contains(&self.max_text) {
            problems.add("max_text", "is out of range", "give a size from 1B to 1MiB");
        }
    }
}
