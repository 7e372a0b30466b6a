//! Archives and directories of plugins, read and written through the public functions.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod build;
mod damage;
mod directory;
mod hostile;
mod made_by;
mod memory;
mod nodes;
mod place;
mod round_trip;
