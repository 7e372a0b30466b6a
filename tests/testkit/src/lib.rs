//! Starts real servers for tests and waits for conditions.
//!
//! A [`Stack`] is Tavern as an operator runs it: the built binaries as processes, in one or in
//! five. Every stack has a loopback address of its own, so that all of them can use the fixed
//! ports and no test has to guess a free one.

mod access;
mod approvals;
mod backend;
mod certificates;
mod clients;
mod database;
mod http;
mod issuer;
mod process;
mod python;
mod run;
mod size;
mod stack;
mod tenants;
mod wait;

pub use access::{Decision, decision, decision_with, differences};
pub use approvals::{APPROVER_KEY, approvals_file};
pub use backend::serve_backend;
pub use certificates::Certificates;
pub use database::{migrate, migrated};
pub use http::exchange;
pub use issuer::TestIssuer;
pub use process::{Process, binary, repository};
pub use python::{PythonServer, python, python_program, python_stubs};
pub use run::{Followed, collect, invoke, until};
pub use size::size;
pub use stack::{PUBLIC_NAME, Stack, StackBuilder, own_loopback_address};
pub use wait::eventually;
