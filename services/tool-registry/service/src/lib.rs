//! Tools: registration, validation, dispatch and the effect ledger.
//!
//! [`tool_domain`] defines tools.
//!
//! - [`settings`], [`error`]: the operator's choices, and the errors of starting the service.
//! - [`peers`], [`service`]: the services that are called, and everything put together.
//! - [`plugins`], [`store`]: where tools come from.
//! - [`tools`]: all tools, those of workflows and nodes included.
//! - [`approvals`]: calls that wait for people.
//! - [`identities`]: principals, their keys and their rights.
//! - [`tenants`]: tenants, their limits and their end.
//! - [`bootstrap_offline`], [`replace_lost_keys`]: keys of an installation that does not run.
//! - [`audit`]: who changed what, and who was denied what.
//! - [`ledger`]: the durable record of each effect.
//! - [`arguments`]: the arguments of a call as one value.
//! - [`conversation_files`]: the workspaces of conversations, which [`workspace_store`] keeps.
//! - [`in_flight`], [`dispatch`]: a call in flight, and its execution by type of implementation.
//! - [`runner`]: calls, each effect at most once, and runs that execute the calls of a text.
//! - [`rpc`]: the gRPC face.

pub mod approvals;
pub mod arguments;
pub mod audit;
mod bootstrap;
pub mod conversation_files;
pub mod dispatch;
pub mod error;
pub mod hooks;
pub mod identities;
pub mod in_flight;
pub mod ledger;
mod overrides;
pub mod peers;
pub mod plugins;
mod program;
pub mod rpc;
pub mod runner;
pub mod service;
pub mod settings;
pub mod store;
pub mod tenants;
mod tool_search;
pub mod tools;

pub use audit::{AuditKeyError, AuditSettings, copy_audit_key, verify_audit};
pub use bootstrap::{BootstrapError, bootstrap_offline, is_in_use, replace_lost_keys};
pub use conversation_files::copy_files;
pub use error::Error;
pub use identities::{Identities, Rights};
pub use peers::Peers;
pub use service::{DATA, SERVICE, ToolRegistry, build, build_at, build_with};
pub use settings::RegistrySettings;
pub use store::SERVER_MIGRATIONS;
pub use tenants::Tenants;
pub use workspace_store::CopiedFiles;
