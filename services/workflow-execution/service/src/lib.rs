//! Workflow definitions, node types and durable runs.
//!
//! The service loads ComfyTavern workflows, checks them, and runs them: independent nodes in
//! parallel, every outcome journalled, so that a run continues after a crash where it stopped.
//!
//! The definition and the execution of workflows, without I/O, are the crate [`workflow_domain`],
//! whose engine is a state machine; the built-in node types are [`workflow_nodes`];
//! [`workflow_runner`] carries out the engine's commands and records the events. This crate has:
//!
//! - [`library`], [`store`]: definitions from files and stored ones; schedules.
//! - `runner`: starting runs, resuming open ones, schedules.
//! - [`peers`], [`service`]: the neighbours, and the parts put together.
//! - `rpc`, `tenants`: the contract, and the data of tenants.
//! - [`settings`], [`error`]: the settings and the errors for operators.

pub mod error;
pub mod library;
pub mod peers;
mod program;
mod rpc;
mod runner;
pub mod service;
pub mod settings;
pub mod store;
mod tenants;

pub use error::Error;
pub use peers::Peers;
pub use service::{DATA, WorkflowExecution, build, build_at, build_with};
pub use settings::WorkflowSettings;
pub use store::SERVER_MIGRATIONS;
