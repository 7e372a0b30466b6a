//! Black-box tests of the gateway over in-memory peers.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod browser;
mod catalogue;
mod connect;
mod denials;
mod door;
mod edge;
mod foreign;
mod forged;
mod guard;
mod identities;
mod matrix;
mod socket;
mod tenants;
mod witness;
