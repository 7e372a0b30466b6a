//! Servers and clients over real sockets, with a small service that obeys its requests.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod child;
mod connections;
mod drain;
mod http1;
mod limits;
mod parity;
mod probe;
mod resets;
mod trace;
