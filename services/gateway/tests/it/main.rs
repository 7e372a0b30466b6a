//! Black-box tests of the gateway over in-memory peers.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod catalogue;
mod connect;
mod edge;
mod guard;
