//! Tests of [`workflow_domain`] with the built-in node types: definitions in, plans, values and
//! findings out, all in memory.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed step fails the test"
)]

mod compile;
mod diagnose;
mod engine;
mod forecast;
mod fork;
mod groups;
mod streams;
mod zones;
