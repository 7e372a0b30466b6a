//! Workflow definitions, node types and durable runs.
//!
//! The service loads ComfyTavern workflows, checks them, and runs them: independent nodes in
//! parallel, every outcome journalled, so that a run continues after a crash where it stopped.
//!
//! What a workflow is and how it runs, without I/O, is the crate [`workflow_domain`], whose engine is a
//! state machine; the built-in node types are [`workflow_nodes`]; [`workflow_runner`] does what the engine
//! commands and records what happened. Here is:
//!
//! - [`library`], [`store`]: definitions from files and stored ones; schedules.
//! - `runner`: starting runs, resuming open ones, schedules.
//! - [`peers`], [`service`]: the services that are called, and the parts put together.
//! - `rpc`: the contract.
//! - [`settings`], [`error`]: what an operator chooses and reads.

pub mod error;
pub mod library;
pub mod peers;
mod program;
mod rpc;
mod runner;
pub mod service;
pub mod settings;
pub mod store;

pub use error::Error;
pub use peers::Peers;
pub use service::{WorkflowExecution, build, build_with};
pub use settings::WorkflowSettings;
