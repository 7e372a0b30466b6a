//! The commands that talk to a Tavern, without any of its services.
//!
//! The binary `tavern` has them along with its own; `tavern-cli` has them alone. A program reads
//! its command line by [`read`], and executes a [`Command`] or a command of [`runs`], [`keys`], [`audit`] or [`plugins`]
//! at the [`Remote`] that the line names.

mod commands;
mod credential;
mod program;
mod timeline;

pub use commands::{Command, Remote, approvals, audit, documents, keys, play_all, plugins, runs};
pub use credential::Key;
pub use program::read;
pub use timeline::name;
