//! The services that this one calls: those that nodes need.

pub use workflow_runner::Peers;
