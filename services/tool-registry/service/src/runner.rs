//! What carries calls out.
//!
//! - [`calls`], [`in_flight`]: each effect at most once.
//! - [`dispatch`]: executing a call, by type of implementation.
//! - [`agents`]: the agents above a call, their inventories and rules.
//! - [`invocation`]: runs that execute the calls of a text.
//! - `retention`: the end of what the registry keeps.

pub mod agents;
pub mod calls;
pub mod dispatch;
pub mod in_flight;
pub mod invocation;
pub(crate) mod retention;
