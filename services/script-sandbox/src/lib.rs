//! Runs untrusted code at a stated isolation level.
//!
//! [`build`] finds out what the host can do: it looks for the interpreters, tries the isolation
//! levels from the strongest to the weakest with a real script, and remembers why a stronger one
//! failed. [`Sandbox::execute`] then runs scripts: each gets a launcher process (the crate
//! `sandbox-launcher`), a plan, and pipes, and ends in exactly one [`domain::verdict::Verdict`].
//!
//! Reading order: [`domain`] decides, [`backend`] says how a level is made, [`cgroup`] and
//! [`census`] measure, [`launch`] starts processes, [`spares`] some of them ahead,
//! [`start`] confined ones, [`pool`] keeps some
//! waiting, [`placing`] puts files in and [`collect`] takes them out, large ones by way of
//! [`blob_store`], [`run`] drives one script to its end, [`stream`] lets a caller talk with it,
//! [`session`] keeps an interpreter for many cells, [`sandbox`] admits requests within the bounds
//! of [`admission`], [`rpc`] speaks the contract. The module `audit` writes what was run, and for whom,
//! to the audit log; the module `metrics` counts it.

pub mod admission;
pub mod backend;
pub mod census;
pub mod cgroup;
pub mod collect;
pub mod domain;
pub mod error;
pub mod launch;
pub mod placing;
pub mod pool;
pub mod rpc;
pub mod run;
pub mod runtimes;
pub mod sandbox;
pub mod scratch;
pub mod session;
pub mod settings;
pub mod spares;
pub mod start;
pub mod stream;
pub mod users;

mod answers;
mod audit;
mod hardware;
mod metrics;

pub use error::{BuildError, Refusal};
pub use sandbox::{Sandbox, build};
pub use settings::SandboxSettings;
