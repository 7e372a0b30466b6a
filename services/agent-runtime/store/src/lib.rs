//! The stores of agent-runtime, apart from its run log.
//!
//! The database holds appended messages, private states, entries of knowledge bases and open questions; profiles,
//! scenes and projects are [`documents`]. The crate calls no model and no tool, and drives no turn.
//!
//! - [`store`]: the SQL.
//! - [`profiles`]: the profiles that clients put or a directory holds.
//! - [`scenes`]: the scenes that clients put or a directory holds.
//! - [`projects`]: profiles, knowledge bases and a first scene under one name.
//! - [`knowledge`]: the entries that agents find and write.
//! - [`questions`]: the questions of agents that people have not answered.
//! - [`conversations`]: turns and appended messages as one conversation; [`history`]: what a model reads of it.

pub mod conversations;
pub mod history;
pub mod knowledge;
pub mod profiles;
pub mod projects;
pub mod questions;
pub mod scenes;
pub mod store;
