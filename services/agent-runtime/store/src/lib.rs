//! The stores of agent-runtime beside its run log.
//!
//! The database holds appended messages, private states, entries of knowledge bases and open questions; profiles,
//! scenes and projects are [`documents`]. The crate asks no model, calls no tool and drives no turn.
//!
//! - [`store`]: the SQL.
//! - [`profiles`]: the agents of a directory and those that were put.
//! - [`scenes`]: the scenes of a directory and those that were put.
//! - [`projects`]: profiles, knowledge bases and a first scene under one name.
//! - [`knowledge`]: what agents look up and write.
//! - [`questions`]: the questions of agents that people have not answered.
//! - [`conversations`]: turns and appended messages as one conversation.

pub mod conversations;
pub mod knowledge;
pub mod profiles;
pub mod projects;
pub mod questions;
pub mod scenes;
pub mod store;
