//! Plugins as packages of the installation: in force, planned, installed, removed.
//!
//! The state of all plugins is one document, whose version is the number of the revision, and their packages are archives by
//! digest in the same database. A change writes the packages that it brings, then the document, and then puts the next
//! [`Revision`](crate::tools::Revision) in force by one pointer: whenever the process ends, the old or the new one is
//! there, whole.
//!
//! - [`PluginCatalogue`]: the state, and the only place that writes it.
//! - `directory`, `watcher`, `scan`, `lock`: the plugin directory, which is scanned every 2 s.
//! - `install`, `planned`, `approval`: changes that people make, and the permissions that they approve.
//! - `kept`: tools of packages that are not in force any more, for calls that began with them.
//! - `surroundings`: the documents that name its tools, and the abilities of the sandbox.
//! - `revise`: the next revision of the tools.
//! - `state`: the stored document.
//! - [`PluginInfo`]: plugins as the API shows them.

mod approval;
mod catalogue;
mod describe;
mod directory;
mod install;
mod kept;
mod lock;
mod planned;
mod revise;
mod scan;
pub(crate) mod state;
mod surroundings;
mod watcher;

use call_outcome::{Violation, sentences};

pub use catalogue::{PluginCatalogue, PluginError, PluginSettings, ScanError};
pub use describe::PluginInfo;
pub(crate) use install::{PluginChange, Source};
pub use surroundings::Surroundings;

/// The most plugins of the plugin directory.
pub const MAX_PLUGINS: usize = 512;

/// A plugin of the plugin directory, or a tool of one, that is not in force.
#[derive(Clone, Debug, PartialEq)]
pub struct Skipped {
    /// The directory of the plugin.
    pub directory: String,
    /// All problems, with places relative to the plugin's directory.
    pub violations: Vec<Violation>,
}

impl std::fmt::Display for Skipped {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let reasons = sentences(&self.violations);
        write!(formatter, "{}: {reasons}", self.directory)
    }
}
