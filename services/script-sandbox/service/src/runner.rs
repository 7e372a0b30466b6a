//! Carries scripts out.
//!
//! [`sandbox`] admits requests within the bounds of [`admission`], `idempotency` remembers the
//! answers to request ids, [`streaming`] connects a caller with a running script, [`session`] keeps
//! an interpreter for many cells.

pub mod admission;
pub mod sandbox;
pub mod session;
pub mod streaming;
