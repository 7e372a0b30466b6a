//! What the sandbox decides without touching the system.

pub mod collect;
pub mod hardware;
pub mod isolation;
pub mod limits;
pub mod outcome;
pub mod profile;
pub mod request;
pub mod session;
pub mod usage;
pub mod verdict;
pub mod violation;
pub mod warm;
