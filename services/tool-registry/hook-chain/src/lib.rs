//! Chains of hooks at the points of the server (rules R202 to R205).
//!
//! A chain asks its hooks one after the other: the condition of each, then its handler, for a decision about the payload
//! of an act. Nothing here knows how a handler is asked; the caller brings that, and the checks of a changed payload.
//!
//! - [`apply`]: a chain that may change an act.
//! - [`observe`]: one hook that only sees it.
//! - `decision`: the answer of a handler, read strictly; `patch`: the changes in it.
//! - [`ActiveHook`]: a hook with its health, as failures in a row suspend it.

mod apply;
mod decision;
mod health;
mod hook;
mod patch;
#[cfg(test)]
mod tests;

pub use apply::{Applied, Ask, Subject, Verdict, apply, fail, observe};
use decision::Decision;
pub use health::Health;
pub use hook::{Action, ActiveHook, Application, HookFailure};
