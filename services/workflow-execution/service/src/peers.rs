//! The services that nodes need.

pub use workflow_runner::Peers;
