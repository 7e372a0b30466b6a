//! Tools: registration, validation, dispatch and the effect ledger.
//!
//! What a tool is, [`tool_domain`] defines.
//!
//! - [`settings`], [`error`]: what an operator can choose, and why the service cannot start.
//! - [`service`]: everything put together.
//! - [`plugins`], [`store`]: where tools come from.
//! - [`tools`]: all tools, those of workflows and nodes included.
//! - [`workspace`]: the files of conversations.
//! - [`dispatch`]: executing a call, by type of implementation.
//! - [`agents`]: the agents above a call, their inventories and rules.
//! - [`approvals`]: calls that wait for people.
//! - [`ledger`], [`in_flight`], [`calls`]: each effect at most once.
//! - [`invocation`]: runs that execute the calls of a text.
//! - [`rpc`]: the gRPC face.

pub mod agents;
pub mod approvals;
pub mod calls;
pub mod dispatch;
pub mod error;
pub mod in_flight;
pub mod invocation;
pub mod ledger;
pub mod plugins;
mod program;
pub mod rpc;
pub mod service;
pub mod settings;
pub mod store;
pub mod tools;
pub mod workspace;

pub use dispatch::builtin::AgentPeer;
pub use error::Error;
pub use service::{Peers, SERVICE, ToolRegistry, build, build_with};
pub use settings::RegistrySettings;
