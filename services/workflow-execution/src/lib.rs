//! Workflow definitions, node types and durable runs.
//!
//! The service loads ComfyTavern workflows, checks them, and runs them: independent nodes in
//! parallel, every outcome journalled, so that a run continues after a crash where it stopped.
//!
//! What a workflow is and how it runs, without I/O, is the crate [`workflow_domain`], whose engine is a
//! state machine; the built-in node types are [`workflow_nodes`]; [`workflow_runner`] does what the engine
//! commands and records what happened. Here is:
//!
//! - [`library`], [`store`]: definitions from files and stored ones.
//! - `schedule_store`: schedules and what became of their times.
//! - [`service`]: the parts put together; starting runs and resuming open ones.
//! - `rpc`: the contract.
//! - [`settings`], [`error`]: what an operator chooses and reads.

pub mod error;
pub mod library;
mod program;
mod rpc;
mod schedule_store;
pub mod service;
pub mod settings;
pub mod store;

pub use error::Error;
pub use service::{WorkflowExecution, build, build_with};
pub use settings::WorkflowSettings;
pub use workflow_runner::Peers;

use std::sync::Arc;

use contracts::tavern::workflow::v1::schedule_service_server::ScheduleServiceServer;
use contracts::tavern::workflow::v1::workflow_service_server::WorkflowServiceServer;

impl WorkflowExecution {
    /// Returns what a server of its own serves.
    pub fn services(&self) -> grpc_kit::Services {
        self.services_beside_gateway()
            .add(self.inner.runs.service())
    }

    /// Returns what a server serves that serves the gateway too, whose run service covers these
    /// runs.
    pub fn services_beside_gateway(&self) -> grpc_kit::Services {
        let rpc = rpc::Rpc::new(Arc::clone(&self.inner));
        let schedules = rpc::ScheduleRpc::new(Arc::clone(&self.inner));
        grpc_kit::Services::new()
            .add(WorkflowServiceServer::new(rpc))
            .add(ScheduleServiceServer::new(schedules))
    }
}
