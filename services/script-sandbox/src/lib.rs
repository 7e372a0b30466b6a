//! Serves untrusted code: admits scripts and sessions, and answers with their verdicts.
//!
//! [`build`] opens the blobs and builds the engine (the crate `sandbox-engine`), which knows how a
//! script is isolated, limited and run. This crate is what stands around it.
//!
//! Reading order: [`sandbox`] admits requests within the bounds of [`admission`], `idempotency` remembers
//! what request ids were answered with, [`streaming`] connects a caller with a running script,
//! [`session`] keeps an interpreter for many cells, [`rpc`] speaks the contract. The module `audit`
//! writes what was run, and for whom, to the audit log; the module `metrics` counts it.

pub mod admission;
pub mod domain;
pub mod error;
pub mod rpc;
pub mod sandbox;
pub mod session;
pub mod settings;
pub mod streaming;

mod audit;
mod idempotency;
mod metrics;
mod program;

pub use error::{BuildError, Refusal};
pub use program::SandboxProgram;
pub use sandbox::{Sandbox, build};
pub use settings::SandboxSettings;
