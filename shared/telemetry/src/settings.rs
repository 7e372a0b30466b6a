//! What an operator can choose about telemetry.

use std::time::Duration;

use ::settings::Problems;
use serde::{Deserialize, Serialize};
use tracing_subscriber::EnvFilter;

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Settings of logs and export.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct TelemetrySettings {
    /// Which log lines are written, in the syntax of `RUST_LOG`. Default `info`. Does not change
    /// what is traced or exported.
    pub log_filter: String,
    /// How log lines look. Default `text`.
    pub log_format: LogFormat,
    /// Where traces, metrics and logs are sent over OTLP/gRPC, such as `http://127.0.0.1:4317`.
    /// Default: nowhere.
    pub otlp_endpoint: Option<String>,
    /// The longest that one export may take. Default `5s`.
    #[serde(with = "::settings::duration")]
    pub export_timeout: Duration,
    /// How often metrics are exported. Default `10s`.
    #[serde(with = "::settings::duration")]
    pub metric_interval: Duration,
    /// The share of new traces that is recorded, from 0 to 1. Default 1. A trace that began
    /// elsewhere keeps the decision that was made there.
    pub sample_ratio: f64,
}

impl Default for TelemetrySettings {
    fn default() -> Self {
        Self {
            log_filter: "info".to_owned(),
            log_format: LogFormat::Text,
            otlp_endpoint: None,
            export_timeout: Duration::from_secs(5),
            metric_interval: Duration::from_secs(10),
            sample_ratio: 1.0,
        }
    }
}

impl TelemetrySettings {
    /// Adds everything that is wrong, with keys below `key`.
    pub fn check(&self, key: &str, problems: &mut Problems) {
        if let Err(error) = EnvFilter::builder().parse(&self.log_filter) {
            problems.add(
                format!("{key}.log_filter"),
                format!("is no log filter: {error}"),
                "give levels and targets such as `info` or `info,gateway=debug`",
            );
        }
        if let Some(endpoint) = &self.otlp_endpoint {
            let usable = endpoint.parse::<http::Uri>().is_ok_and(|uri| {
                uri.scheme_str() == Some("http") && uri.host().is_some_and(|host| !host.is_empty())
            });
            if !usable {
                problems.add(
                    format!("{key}.otlp_endpoint"),
                    format!("is `{endpoint}`"),
                    "give the address of an OTLP/gRPC receiver such as http://127.0.0.1:4317; \
                     TLS is not supported, put a local collector in between",
                );
            }
        }
        if !(0.0..=1.0).contains(&self.sample_ratio) {
            problems.add(
                format!("{key}.sample_ratio"),
                format!("is {}", self.sample_ratio),
                "give a number from 0 to 1",
            );
        }
        for (name, value) in [
            ("export_timeout", self.export_timeout),
            ("metric_interval", self.metric_interval),
        ] {
            if value.is_zero() || value > Duration::from_secs(600) {
                problems.add(
                    format!("{key}.{name}"),
                    format!("is {}", ::settings::duration::print(value)),
                    "give a duration from 1ms to 10m",
                );
            }
        }
    }
}
