//! What agent-runtime keeps beside the runs.
//!
//! The database holds the documents that were put, with their revisions, appended messages, private states,
//! entries of knowledge bases and open questions. Documents of a directory stand beside those that were put
//! and give way to them. The crate asks no model, calls no tool and drives no turn.
//!
//! - [`store`]: the SQL.
//! - [`profiles`]: the agents of a directory and those that were put.
//! - [`scenes`]: the scenes of a directory and those that were put.
//! - [`projects`]: profiles, knowledge bases and a first scene under one name.
//! - [`revisions`]: what profiles, scenes and projects were before.
//! - [`knowledge`]: what agents look up and write.
//! - [`questions`]: the questions of agents that people have not answered.
//! - [`conversations`]: turns and appended messages as one conversation.

pub mod conversations;
pub mod error;
pub mod knowledge;
pub mod profiles;
pub mod projects;
pub mod questions;
pub mod revisions;
pub mod scenes;
pub mod store;
