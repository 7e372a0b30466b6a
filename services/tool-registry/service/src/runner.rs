//! What carries calls out.
//!
//! - [`calls`]: each effect at most once.
//! - [`agents`]: the agents above a call, their inventories and rules.
//! - [`invocation`]: runs that execute the calls of a text.
//! - `retention`: the end of what the registry keeps.

pub mod agents;
pub mod calls;
pub mod invocation;
pub(crate) mod retention;
