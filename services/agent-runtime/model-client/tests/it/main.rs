//! Black-box tests: models over a socket.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod encrypted;
mod endpoint;
mod model_endpoints;
mod model_retries;
