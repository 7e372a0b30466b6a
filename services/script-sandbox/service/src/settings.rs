//! The settings of the script sandbox.

mod sessions;

use std::path::PathBuf;

use blob_store::BlobSettings;
use sandbox_engine::{
    EngineSettings,
    domain::{
        isolation::{IsolationLevel, MemoryEnforcement},
        limits::Limits,
    },
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use settings::Problems;

pub use sessions::SessionSettings;

/// Settings of the script sandbox; variables begin with `TAVERN_SANDBOX__`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SandboxSettings {
    /// The server. Default address 127.0.0.1:7404. When the service is ordered to end, scripts that
    /// outlast three quarters of its `drain_grace` are ended, and their callers are informed.
    pub server: grpc_kit::ServerSettings,
    /// Traces, metrics and logs.
    pub telemetry: telemetry::TelemetrySettings,
    /// The least isolation under which scripts are run: `full`, `full_without_proc` or `reduced`.
    /// On a host that does not reach it every script is refused. Default `full`.
    pub lowest_isolation: IsolationLevel,
    /// The strongest isolation that is tried. Lower it to see how a weaker host behaves. Default
    /// `full`.
    pub highest_isolation: IsolationLevel,
    /// The least enforcement of memory and processes: `sampled`, `cgroup_v2` or `cgroup_v1`.
    /// Default `sampled`.
    pub lowest_memory_enforcement: MemoryEnforcement,
    /// Whether cgroups are used where they can be written. Default true.
    pub use_cgroups: bool,
    /// The launcher program. Empty: next to the running program or one directory above it. Default
    /// empty.
    pub launcher_path: PathBuf,
    /// A directory of further runtime profiles, `*.toml`; one with the name of a built-in runtime
    /// replaces it. Empty: only the built-in ones. Default empty.
    pub profiles_directory: PathBuf,
    /// The directory of the package sets that `tavern packages build` has made. Empty: there are none. Default empty.
    pub packages_directory: PathBuf,
    /// The directory in which the reduced level makes its working directories. Default: the
    /// system's directory for temporary files.
    pub scratch_directory: PathBuf,
    /// The most scripts that run at once. More wait. Default 16.
    pub concurrent_scripts: u32,
    /// The most interpreters of one kind that wait for a script, started ahead; of all kinds four times as many. A kind is
    /// a runtime with a package set or without. The first is started when the first script of its kind was; they count
    /// apart from `concurrent_scripts`. 0: none. Default 4.
    pub warm_interpreters: u32,
    /// The most memory of all waiting interpreters together; the kind that was used least makes room. Default 256MiB.
    #[serde(with = "settings::SizeText")]
    pub warm_memory: usize,
    /// The most scripts of a tenant that wait. Beyond it a request is refused with a retry hint. Default 64.
    pub waiting_scripts: u32,
    /// The first of 1000 user ids that scripts get when the service runs as root. They must be
    /// unused on this host. Services on one host share them out among themselves. Default 64000.
    pub first_user: u32,
    /// Files that are too large for messages: their directory and quotas.
    pub blobs: BlobSettings,
    /// Sessions.
    pub sessions: SessionSettings,
    /// Limits of a request that names none.
    pub default_limits: Limits,
    /// The greatest limits that a request can choose.
    pub maximum_limits: Limits,
}

impl Default for SandboxSettings {
    fn default() -> Self {
        Self {
            server: grpc_kit::ServerSettings {
                listen: std::net::SocketAddr::from(([127, 0, 0, 1], 7404)),
                ..Default::default()
            },
            telemetry: telemetry::TelemetrySettings::default(),
            lowest_isolation: IsolationLevel::Full,
            highest_isolation: IsolationLevel::Full,
            lowest_memory_enforcement: MemoryEnforcement::Sampled,
            use_cgroups: true,
            launcher_path: PathBuf::new(),
            profiles_directory: PathBuf::new(),
            packages_directory: PathBuf::new(),
            scratch_directory: std::env::temp_dir(),
            concurrent_scripts: 16,
            warm_interpreters: 4,
            warm_memory: 256 << 20,
            waiting_scripts: 64,
            first_user: 64_000,
            blobs: BlobSettings::default(),
            sessions: SessionSettings::default(),
            default_limits: Limits::DEFAULT,
            maximum_limits: Limits::MAXIMUM,
        }
    }
}

impl settings::Settings for SandboxSettings {
    const PREFIX: &'static str = "TAVERN_SANDBOX";

    const REPLACED: &'static [(&'static str, &'static str)] = grpc_kit::settings::REPLACED;

    fn check(&self, problems: &mut Problems) {
        self.server
            .check_service("server", grpc_kit::ServiceName::Sandbox, problems);
        self.telemetry.check("telemetry", problems);
        if self.highest_isolation < self.lowest_isolation {
            let lowest = self.lowest_isolation.name();
            let problem = format!("is weaker than lowest_isolation ({lowest})");
            let remedy = "raise it, or lower lowest_isolation";
            problems.add("highest_isolation", problem, remedy);
        }
        if !self.use_cgroups && self.lowest_memory_enforcement > MemoryEnforcement::Sampled {
            let problem = "demands cgroups, which use_cgroups switches off";
            problems.add("lowest_memory_enforcement", problem, "set one of the two");
        }
        self.check_counts(problems);
        if self.first_user < 1000 || self.first_user.checked_add(1000).is_none() {
            let remedy = "give a user id from 1000 on";
            problems.add("first_user", "is not a range of free users", remedy);
        }
        self.blobs.check("blobs", problems);
        self.sessions.check(problems);
        let ceiling = self.maximum_limits.problems(&Limits::CEILING);
        let maximum = self.default_limits.problems(&self.maximum_limits);
        for (group, violations) in [("maximum_limits", ceiling), ("default_limits", maximum)] {
            for violation in violations {
                let key = limit_key(&violation.field, group);
                problems.add(key, violation.problem, "give a value in that range");
            }
        }
    }
}

impl SandboxSettings {
    /// The settings of the engine.
    pub fn engine(&self) -> EngineSettings {
        EngineSettings {
            launcher_path: self.launcher_path.clone(),
            profiles_directory: self.profiles_directory.clone(),
            packages_directory: self.packages_directory.clone(),
            scratch_directory: self.scratch_directory.clone(),
            highest_isolation: self.highest_isolation,
            use_cgroups: self.use_cgroups,
            concurrent_scripts: self.concurrent_scripts,
            sessions: self.sessions.maximum,
            warm_interpreters: self.warm_interpreters,
            warm_memory: self.warm_memory as u64,
            default_limits: self.default_limits,
            first_user: self.first_user,
        }
    }

    fn check_counts(&self, problems: &mut Problems) {
        for (key, value, least, most) in [
            ("concurrent_scripts", self.concurrent_scripts, 1, 1024),
            ("warm_interpreters", self.warm_interpreters, 0, 256),
            ("waiting_scripts", self.waiting_scripts, 0, 65_536),
        ] {
            if !(least..=most).contains(&value) {
                let remedy = format!("give a number from {least} to {most}");
                problems.add(key, "is out of range", remedy);
            }
        }
    }
}

/// The key of a limit in the settings, where sizes have their unit in the value.
fn limit_key(field: &str, group: &str) -> String {
    let key = field.replacen("limits", group, 1);
    key.strip_suffix("_bytes").unwrap_or(&key).to_owned()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    fn load(variables: &[(&str, &str)]) -> Result<SandboxSettings, settings::SettingsError> {
        let variables = variables.iter().map(|(name, value)| {
            let name = format!("TAVERN_SANDBOX__{name}");
            (OsString::from(name), OsString::from(value))
        });
        settings::load_from(None, variables, &[]).map(|loaded| loaded.settings)
    }

    #[test]
    fn the_defaults_demand_full_isolation() {
        let settings = load(&[]).unwrap();
        assert_eq!(settings.lowest_isolation, IsolationLevel::Full);
        assert_eq!(settings.default_limits, Limits::DEFAULT);
    }

    #[test]
    fn a_lower_level_and_other_limits_can_be_set() {
        let settings = load(&[
            ("LOWEST_ISOLATION", "reduced"),
            ("DEFAULT_LIMITS__MEMORY", "128MiB"),
            ("MAXIMUM_LIMITS__WALL_TIME", "2m"),
        ])
        .unwrap();
        assert_eq!(settings.lowest_isolation, IsolationLevel::Reduced);
        assert_eq!(settings.default_limits.memory, 128 << 20);
        assert_eq!(settings.maximum_limits.wall_time.as_secs(), 120);
    }

    #[test]
    fn a_bound_that_is_no_setting_is_unknown() {
        for name in ["SERVER__DRAIN_NOTICE", "SERVER__CONNECTION__FIRST_BYTES"] {
            let message = load(&[(name, "1s")]).unwrap_err().to_string();
            assert!(message.contains("is unknown"), "{name}: {message}");
        }
    }

    #[test]
    fn everything_wrong_is_named_at_once() {
        let error = load(&[
            ("HIGHEST_ISOLATION", "reduced"),
            ("CONCURRENT_SCRIPTS", "0"),
            ("FIRST_USER", "0"),
            ("BLOBS__TOTAL", "1B"),
            ("MAXIMUM_LIMITS__OUTPUT", "1GiB"),
            ("DEFAULT_LIMITS__PROCESSES", "0"),
        ])
        .unwrap_err();
        let message = error.to_string();
        for key in [
            "highest_isolation",
            "concurrent_scripts",
            "first_user",
            "blobs.total",
            "maximum_limits.output",
            "default_limits.processes",
        ] {
            assert!(message.contains(key), "{key} is missing in {message}");
        }
        assert!(!message.contains("_bytes"), "{message}");
        for key in ["maximum_limits.result", "default_limits.memory"] {
            assert!(!message.contains(key), "{key} is not wrong, {message}");
        }
    }
}
