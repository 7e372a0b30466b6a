//! Asks the registry for the parts of plugins in acts of other services: hooks (rules R201 to R206), and backends that
//! stand in for services (rule R207).
//!
//! workflow-execution asks about runs and questions, and agent-runtime about turns, requests to models and knowledge.
//! The points that have hooks and the overridden services are followed, so that an act elsewhere costs one atomic read.
//! While they are not known, as the registry cannot be reached, it is asked each time: no hook is passed over, and no
//! data of an overridden service gets into the platform's own store.

mod asked;
mod hooks;
mod overrides;

use std::time::Duration;

pub use asked::{Point, Service};
pub use hooks::{Applied, HookClient};
pub use overrides::{OverrideClient, Refusal, malformed};

/// The longest wait for the registry.
const PATIENCE: Duration = Duration::from_secs(10);
