//! Tenants as services know them: weights, limits, uses, and fair turns.
//!
//! The tool registry owns tenants, and every second sends them to the other services, which return their uses.
//!
//! - [`tags`]: the order in which tenants have their turns (p: no clock, no I/O).
//! - [`slots`]: places for so much at once, with a fair queue before them.
//! - [`tenants`]: weights and limits, and whether more is permitted.
//! - [`sync`]: the service by which they arrive.

pub mod slots;
pub mod sync;
pub mod tags;
pub mod tenants;

pub use slots::{Ask, FairSlots, QueueFull, Slot};
pub use sync::{TenantData, TenantSync};
pub use tags::{Tag, Tags};
pub use tenants::{LimitReached, Quantity, Tenants, Use, closed};
