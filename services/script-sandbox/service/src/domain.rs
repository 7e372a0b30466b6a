//! What the service decides without touching the system.

pub mod session;
