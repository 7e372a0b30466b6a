//! The decisions of the service, made without touching the system.

pub mod session;
