//! Traces, metrics and logs over OTLP, and all attribute names.
//!
//! [`init`] is called once at the top of `main`, inside the tokio runtime. Logs go to standard
//! error as text or JSON. With an OTLP endpoint in the settings, traces, metrics and logs are
//! exported to it over gRPC as well; without an endpoint no record leaves the process, but every
//! span still has its trace and span id, so that events and answers can name them.
//!
//! - [`settings`]: the settings of an operator.
//! - [`init`]: the set-up, and the guard that flushes.
//! - [`context`]: W3C trace context in and out, ids of the current span.
//! - [`spans`]: the spans of agents, tools, workflows and models.
//! - [`metrics`]: the metrics that every service has.
//! - [`attributes`]: every attribute key; none is a literal elsewhere.

pub mod attributes;
pub mod context;
pub mod init;
mod log_context;
pub mod metrics;
pub mod settings;
pub mod spans;

pub use init::{Guard, TelemetryError, init, init_for_tests, init_for_tests_with, meter};
pub use settings::{LogFormat, TelemetrySettings};

/// The target of audit records: one log event for each action that a person answers for, such as
/// the execution of a script. They have the level `INFO`, go wherever other log lines go, and are
/// distinguished by this target; see [`TelemetrySettings::log_filter`].
pub const AUDIT_TARGET: &str = "tavern::audit";
