//! Runs one script at a stated isolation level: a [`domain::script::Script`] in, an
//! [`domain::outcome::Outcome`] out.
//!
//! [`Engine::build`] examines the host: it finds the interpreters, tries the isolation levels from
//! the strongest to the weakest with a real script (`self_test`), and records the failures of
//! stronger levels. [`run::run`] then runs scripts: each gets a launcher process (the crate
//! `sandbox-launcher`), a plan and pipes, and ends in exactly one [`domain::verdict::Verdict`].
//!
//! Reading order: [`domain`] decides, [`backend`] defines the levels, [`cgroup`] and [`proc_usage`]
//! measure, [`launcher`] starts processes, [`launcher_pool`] starts some of them ahead, [`slot`]
//! starts sandboxed ones, [`pool`] keeps some waiting, [`input_files`] puts files in and
//! [`output_files`] takes them out, large ones by way of [`blob_store`], [`workspace`] keeps them the same on both sides, [`run`] drives one script
//! to its end, [`engine`] puts everything together.

pub mod backend;
pub mod cgroup;
pub mod domain;
pub mod engine;
pub mod hardware;
pub mod input_files;
pub mod launcher;
pub mod launcher_pool;
pub mod output_files;
pub mod packages;
pub mod pool;
pub mod proc_usage;
pub mod run;
pub mod runtimes;
pub mod scratch;
pub mod slot;
pub mod users;
pub mod workspace;

mod engine_settings;
mod error;
mod self_test;

pub use engine::{Engine, Report};
pub use engine_settings::EngineSettings;
pub use error::BuildError;
