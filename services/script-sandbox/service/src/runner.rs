//! Carries scripts out.
//!
//! [`sandbox`] admits requests within the bounds of the settings and of tenants (`shares`), [`streaming`] connects a
//! caller with a running script, [`session`] keeps an interpreter for many cells.

pub mod sandbox;
pub mod session;
pub(crate) mod shares;
pub mod streaming;
