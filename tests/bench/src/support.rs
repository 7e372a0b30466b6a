//! Parts that several benchmarks share.

pub(crate) mod echo;
pub(crate) mod edge;
pub(crate) mod in_process;
pub(crate) mod processes;
pub(crate) mod receiver;
pub(crate) mod served;

use telemetry::{Guard, TelemetrySettings};

/// Sets telemetry up as a server without a collector has it, but with fewer messages: measuring and
/// printing must not disturb each other.
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
