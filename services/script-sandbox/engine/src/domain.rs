//! The decisions of the engine, made without touching the system.

pub mod collect;
pub mod hardware;
pub mod isolation;
pub mod limits;
pub mod outcome;
pub mod owner;
pub mod package_set;
pub mod path;
pub mod pool_sizer;
pub mod profile;
pub mod progress;
pub mod script;
pub mod stream;
pub mod usage;
pub mod verdict;
pub mod violation;
pub mod workspace;
