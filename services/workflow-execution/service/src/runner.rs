//! Carries runs and schedules out.
//!
//! - `start`, `target`, `concurrency`: starting runs.
//! - `fork`, `fork_edit`: starting a run that takes over parts of another.
//! - `hooked`: the hooks of plugins about runs.
//! - `recover`, `definition_store`: resuming open runs, with the definitions that they execute.
//! - `schedules`: schedules, and starting runs at their times.

mod concurrency;
mod definition_store;
mod fork;
mod fork_edit;
mod hooked;
mod recover;
mod schedules;
mod start;
mod target;

use std::sync::Arc;

use core_types::{Clock, IdSource};
use plugin_client::HookClient;
use run_events::Runs;

use crate::library::Library;
use workflow_runner::run_keys::RunKeys;
use workflow_runner::{RunPlaces, Runner};

pub(crate) use definition_store::DefinitionStore;
pub(crate) use recover::{recover, resume_what_rests};
pub(crate) use schedules::{ScheduleTicker, Schedules};

/// The resources of runs and schedules.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) library: Library,
    /// The hooks of plugins.
    pub(crate) hooks: HookClient,
    pub(crate) runs: Runs,
    pub(crate) runner: Arc<Runner>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ids: Arc<dyn IdSource>,
    pub(crate) places: RunPlaces,
    pub(crate) keys: RunKeys,
    pub(crate) definitions: DefinitionStore,
    pub(crate) schedules: Schedules,
    pub(crate) ticker: ScheduleTicker,
}
