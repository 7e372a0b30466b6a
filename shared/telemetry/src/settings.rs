//! The settings of telemetry.

use std::time::Duration;

use ::settings::Problems;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing_subscriber::{EnvFilter, filter::ParseError};

use crate::AUDIT_TARGET;

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Settings of logs and export.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TelemetrySettings {
    /// The filter of log lines, in the syntax of `RUST_LOG`. Default `info,opentelemetry=warn`, as
    /// OpenTelemetry logs its own set-up otherwise. It does not affect traces and exports. Audit
    /// records are written whatever its levels and other targets; a directive that names
    /// `tavern::audit` decides about them, such as `warn,tavern::audit=off`.
    pub log_filter: String,
    /// The format of log lines. Default `text`.
    pub log_format: LogFormat,
    /// The endpoint for traces, metrics and logs over OTLP/gRPC, such as `http://127.0.0.1:4317`.
    /// Default: none.
    pub otlp_endpoint: Option<String>,
    /// The interval between exports of metrics. Default `10s`.
    #[serde(with = "::settings::DurationText")]
    pub metric_interval: Duration,
    /// The share of new traces that is recorded, from 0 to 1. Default 1. A trace that began
    /// elsewhere keeps its decision.
    pub sample_ratio: f64,
}

impl Default for TelemetrySettings {
    fn default() -> Self {
        Self {
            log_filter: "info,opentelemetry=warn".to_owned(),
            log_format: LogFormat::Text,
            otlp_endpoint: None,
            metric_interval: Duration::from_secs(10),
            sample_ratio: 1.0,
        }
    }
}

impl TelemetrySettings {
    /// Returns the filter of log lines. A filter for less output does not mean the audit log, so
    /// only its own name silences it.
    pub(crate) fn filter(&self) -> Result<EnvFilter, ParseError> {
        let names_audit = |directive: &str| {
            let target = directive.split(['=', '[']).next();
            target == Some(AUDIT_TARGET)
        };
        let filter = EnvFilter::builder().parse(&self.log_filter)?;
        if self.log_filter.split(',').any(names_audit) {
            return Ok(filter);
        }
        Ok(filter.add_directive(format!("{AUDIT_TARGET}=info").parse()?))
    }

    /// Adds every problem, with keys below `key`.
    pub fn check(&self, key: &str, problems: &mut Problems) {
        if let Err(error) = self.filter() {
            problems.add(
                format!("{key}.log_filter"),
                format!("is not a log filter: {error}"),
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
        if self.metric_interval.is_zero() || self.metric_interval > Duration::from_secs(600) {
            problems.add(
                format!("{key}.metric_interval"),
                format!("is {}", ::settings::duration::print(self.metric_interval)),
                "give a duration from 1ms to 10m",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write, sync::Arc, sync::Mutex};

    use tracing_subscriber::{Layer, layer::SubscriberExt};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// Returns the lines that are written of a warning, an ordinary event and an audit record.
    fn written(log_filter: &str) -> String {
        let settings = TelemetrySettings {
            log_filter: log_filter.to_owned(),
            ..TelemetrySettings::default()
        };
        let lines = Lines::default();
        let writer = lines.clone();
        let layer = tracing_subscriber::fmt::layer()
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .with_filter(settings.filter().unwrap());
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!("a warning");
            tracing::info!("an ordinary line");
            tracing::info!(target: AUDIT_TARGET, caller_id = "a\nb\u{1b}[2J\"", "an audit record");
        });
        let bytes = lines.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn only_its_own_name_silences_the_audit_log() {
        for (filter, expected) in [
            ("info", [true, true, true]),
            ("warn", [true, false, true]),
            ("error", [false, false, true]),
            ("off", [false, false, true]),
            ("off,tavern=warn", [false, false, true]),
            ("info,tavern::audit=off", [true, true, false]),
            ("info,tavern::audit=warn", [true, true, false]),
            ("off,tavern::audit=info", [false, false, true]),
        ] {
            let text = written(filter);
            let found = ["a warning", "an ordinary line", "an audit record"]
                .map(|line| text.contains(line));
            assert_eq!(found, expected, "{filter}: {text}");
        }
    }

    #[test]
    fn a_record_is_one_line_whatever_is_in_its_fields() {
        let text = written("error");
        assert_eq!(text.lines().count(), 1, "{text}");
        let odd = |character: char| character.is_control() && character != '\n';
        assert!(!text.contains(odd), "{text:?}");
    }
}
