//! Servers and clients over real sockets, with a small service that obeys its requests.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod certificates;
mod child;
mod connections;
mod drain;
mod exposure;
mod handshakes;
mod http1;
mod limits;
mod parity;
mod probe;
mod renewal;
mod resets;
mod tls;
mod trace;
