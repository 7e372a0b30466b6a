//! The files of conversations, and the files that plugins keep.
//!
//! Each conversation has a workspace: a directory beneath the data directory; those of tenants other than the default
//! one are in a directory of their tenant. A plugin that keeps files has such a directory in each tenant too. Everything
//! goes through directory handles, so that no path and no link leads out of it, whatever a model writes. A file is written
//! beside the workspaces first, synced, and then renamed into its place: a reader sees the old content or the new one, and
//! a crash leaves nothing half-written.
//!
//! Where the files are at a server (`server-files`), the directories are copies of them: a workspace is compared with its
//! version there when it is opened, and each change is recorded there before it is reported.
//!
//! - [`Workspace`]: the operations on texts, and on content of any size in pieces.
//! - [`File`]: a file with the digest of its content and its media type, of which [`Workspace::files`] makes a list.
//! - [`changes`]: the changes of code, brought together with those that were made meanwhile.
//!
//! The functions block; callers run them on threads that may.

pub mod changes;
pub mod failure;

mod content;
mod copy;
mod digests;
mod files;
mod limits;
mod media_type;
mod owners;
mod place;
mod staged;
mod store;
mod taken;
#[cfg(test)]
mod tests;
mod transfer;
mod tree;

pub use changes::{Change, Made, MadeKind};
pub use content::{Condition, OpenFile};
pub use digests::File;
pub use files::Listing;
pub use limits::WorkspaceLimits;
pub use media_type::media_type;
pub use staged::{Staged, Staging};
pub use store::{Workspace, Workspaces, check_conversation};
pub use taken::Taken;
pub use transfer::CopiedFiles;
pub use tree::{EntryKind, ListedFile};
