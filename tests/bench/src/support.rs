//! What several benchmarks need.

pub(crate) mod echo;
pub(crate) mod edge;
pub(crate) mod in_process;
pub(crate) mod processes;
pub(crate) mod receiver;
pub(crate) mod served;

use telemetry::{Guard, TelemetrySettings};

/// Sets telemetry up as a server without a collector has it, but with less to say: what is
/// measured here and what is printed here must not get into each other's way.
///
/// # Errors
/// It cannot be set up.
pub(crate) fn telemetry() -> anyhow::Result<Guard> {
    let settings = TelemetrySettings {
        log_filter: format!("error,{}=off", telemetry::AUDIT_TARGET),
        ..TelemetrySettings::default()
    };
    Ok(telemetry::init(
        &settings,
        "bench",
        env!("CARGO_PKG_VERSION"),
    )?)
}
