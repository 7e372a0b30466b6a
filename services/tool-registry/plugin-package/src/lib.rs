//! The files of a plugin, and the plugin that they make, without a server.
//!
//! A plugin is a directory or a `.zip` archive with a `plugin.yaml`. Both become [`PluginFiles`], which hold every file
//! in memory: whatever happens on the disk meanwhile, a script sees the bytes that were read, and nothing of an archive
//! is ever unpacked to a disk. Both readers take any input. They refuse it whole, with every violation that they can
//! find, or return files that a reader of the other container returns too.
//!
//! - [`PluginFiles`]: the scripts and definitions, the front-end assets, and the digest over all of them.
//! - [`open_plugin`], [`read_directory`]: a directory, through its handle.
//! - [`read_archive`], [`write_archive`]: an archive, read with suspicion and written in one form.
//! - [`read_path`], [`write_new_directory`]: either container at a path, for commands.
//! - [`template`]: the files of a new plugin.
//! - [`check`]: the plugin of files, and all faults of its manifest and of its tools.
//! - [`plan_alone`]: the plan of it where nothing is installed.

mod archive;
mod check;
mod directory;
mod files;
mod limits;
mod names;
mod package_set;
mod place;
mod plan;
mod refusal;
mod template;

pub use archive::{MAX_PACKED_BYTES, read_archive, write_archive};
pub use check::{Checked, Plugin, STORAGE_DIRECTORY, WORKSPACE_DIRECTORY, check};
pub use directory::{open_plugin, read_directory};
pub use files::PluginFiles;
pub use limits::{MAX_ASSET_BYTES, MAX_ASSETS, MAX_ENTRIES};
pub use names::{MAX_COMPONENT_BYTES, MAX_DEPTH, MAX_PATH_BYTES};
pub use package_set::PluginSet;
pub use place::{read_path, write_new_directory};
pub use plan::{TAVERN, plan_alone};
pub use template::template;
pub use tool_domain::plan::render::text as plan_text;

/// The file that makes a directory a plugin.
pub const MANIFEST: &str = "plugin.yaml";
