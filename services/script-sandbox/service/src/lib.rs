//! Serves untrusted code: admits scripts and sessions, and answers with their verdicts.
//!
//! [`build`] opens the blobs and builds the engine (the crate `sandbox-engine`), which knows how a
//! script is isolated, limited and run. This crate is what stands around it.
//!
//! - [`settings`], [`error`], [`service`]: putting the service together.
//! - [`domain`]: what is decided about sessions.
//! - [`runner`]: admitting requests and carrying them out; streams and sessions.
//! - [`rpc`]: the wire.
//! - `audit`, `metrics`: what was run, and for whom, in the audit log, and counted.

mod audit;
pub mod domain;
pub mod error;
mod metrics;
mod program;
pub mod rpc;
pub mod runner;
pub mod service;
pub mod settings;

pub use error::{Error, Refusal};
pub use program::SandboxProgram;
pub use runner::sandbox::Sandbox;
pub use service::{build, services};
pub use settings::SandboxSettings;
