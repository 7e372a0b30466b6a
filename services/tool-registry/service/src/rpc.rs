//! The gRPC face: requests are read, domain functions called, responses written.
//!
//! - [`CatalogueRpc`] with `tools`, `backends`, `availability`: adding, deleting, lookup, validation, and
//!   whether a tool can be called.
//! - [`CallRpc`] with `calls`, `call_list`, `call_resource`: starting, following and deciding calls.
//! - [`IdentityRpc`]: credentials, principals and keys.
//! - [`PluginRpc`]: planning, installing, setting and removing plugins.
//! - [`TenantRpc`]: tenants, their limits and their end.
//! - [`ApprovalRpc`]: listing, following and deciding approvals.
//! - `AuditRpc` with `audited`: the audit, and the services whose changes it records.
//! - `WorkspaceRpc`: the files of conversations.
//! - [`convert`]: domain types as messages.
//! - `page`, `refusal`: the common parts of lists and refusals.

mod approvals;
mod audit;
mod audited;
mod availability;
mod backends;
mod call_list;
mod call_resource;
mod call_service;
mod calls;
mod catalogue;
pub mod convert;
mod identities;
mod page;
mod plugins;
mod refusal;
mod tenants;
mod tool_search;
mod tools;
mod workspaces;

use std::pin::Pin;

use futures::Stream;
use tonic::{Response, Status};

pub use approvals::ApprovalRpc;
pub(crate) use audit::AuditRpc;
pub(crate) use audited::{Audited, bootstrap_at_rest};
pub use call_service::CallRpc;
pub use catalogue::CatalogueRpc;
pub use identities::IdentityRpc;
pub use plugins::PluginRpc;
pub use tenants::TenantRpc;
pub(crate) use tool_search::ToolSearchRpc;
pub(crate) use workspaces::WorkspaceRpc;

type Answer<T> = Result<Response<T>, Status>;
type StreamOf<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;
