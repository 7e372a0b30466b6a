//! The execution of calls.
//!
//! - [`calls`]: each effect at most once.
//! - [`agents`]: the agents above a call, their inventories and rules.
//! - `key_sources`: the places of the keys of issuers.
//! - [`rights`]: whether a principal may call a tool.
//! - [`invocation`]: runs that execute the calls of a text.
//! - `retention`: the deletion of old entries of the ledger and approvals.
//! - `tenant_data`: the data of tenants, and their removal.
//! - `tenant_exchange`: sends the tenants to every service, takes their uses, and leads closed tenants to their end.

pub mod agents;
pub mod calls;
pub mod invocation;
pub(crate) mod key_sources;
pub(crate) mod retention;
pub mod rights;
pub(crate) mod tenant_data;
pub(crate) mod tenant_exchange;
