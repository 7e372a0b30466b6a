//! Serves untrusted code: admits scripts and sessions, and answers with their verdicts.
//!
//! [`build`] opens the blobs and builds the engine (the crate `sandbox-engine`), which isolates,
//! limits and runs each script. This crate is the service around it.
//!
//! - [`settings`], [`error`], [`service`]: putting the service together.
//! - [`domain`]: decisions about sessions.
//! - [`runner`]: admitting requests and carrying them out; streams and sessions.
//! - [`rpc`]: the wire.
//! - `tenants`: their data here, and its end.
//! - `audit`, `metrics`: the runs and their callers, in the audit log, and counted.

mod audit;
pub mod domain;
pub mod error;
mod metrics;
mod program;
pub mod rpc;
pub mod runner;
pub mod service;
pub mod settings;
mod tenants;

pub use error::{Error, Refusal};
pub use program::SandboxProgram;
pub use runner::sandbox::Sandbox;
pub use service::{build, build_with, services, services_beside_gateway};
pub use settings::SandboxSettings;
