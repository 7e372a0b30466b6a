//! Builds package sets: libraries that scripts import without installing them.
//!
//! An operator describes a set in a file ([`SetFile`]) and has a lock written for it, which names the exact files of its
//! packages by their digests ([`Builder::lock`]). [`Builder::build`] fetches them (`installer`), unpacks them (`wheel`),
//! names them by a digest (`tree`), prepares them in the sandbox (`prepare`), where alone their code runs, and puts the
//! set in its place when it is whole. `sandbox_engine::packages` is the way by which scripts find it.

mod build;
mod error;
mod installer;
mod prepare;
mod set_file;
mod tree;
mod wheel;

pub use build::{Builder, Built, remove};
pub use error::BuildError;
pub use set_file::{SetFile, path_of};
