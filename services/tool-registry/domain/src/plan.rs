//! The plan of a change of a plugin: everything that a person reads before approving it (rules R104
//! and R108).
//!
//! A [`Plan`] is made of two versions of a plugin and of its surroundings, and changes nothing. Its
//! digest is the thing that is approved.
//!
//! - [`input`]: the versions and the surroundings.
//! - [`make`]: the plan.
//! - [`approval`]: the reasons for which a person must approve a change.
//! - [`render`]: the plan as text, for a terminal and for the page.
//! - `document`: the types of a plan, which are its JSON.

pub mod approval;
mod classes;
mod conflicts;
mod document;
mod files;
mod hooks;
pub mod input;
mod make;
mod remarks;
pub mod render;
mod schema_change;
#[cfg(test)]
mod tests;
mod tools;
mod usage;

pub use document::{
    Change, ChangeClass, Conflict, Dependents, FileChanges, Plan, PlanRemark, PlannedEffects,
    PlannedHook, PlannedOption, PlannedOverride, PlannedPermission, PlannedTool, Replaced,
};
pub use input::{ChainedHook, HeldName, NameKind, PackedFile, PlanInput, PluginVersion};
pub use make::make;
