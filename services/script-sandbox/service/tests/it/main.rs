//! The sandbox from outside: real scripts through the RPCs.
//!
//! Every test that begins with `e` and a number is a hostile program of the list in ABUSE.md.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod abuse;
mod admission;
mod audit;
mod blobs;
mod census;
mod cgroups;
mod collect;
mod control;
mod execute;
mod isolation;
mod killed;
mod lifecycle;
mod listed;
mod odd;
mod oracle;
mod packages;
mod principals;
mod rounds;
mod sessions;
mod stream;
mod support;
mod tenants;
mod warm;
