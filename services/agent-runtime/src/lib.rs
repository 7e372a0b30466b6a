//! Agent profiles, conversations, model clients and the deliberate-act-observe loop.
//!
//! A turn begins with what a user says, or with what a model wrote for a caller. The model is
//! asked with the agent's instructions, its tools and the conversation; its answer is read; its
//! calls go to tool-registry one by one; the model reads what came of them, until it answers
//! without a call or a budget ends. Every step is in the run's log before it has an effect, so
//! that a turn survives its process.
//!
//! - [`settings`], [`error`], [`peers`], [`service`]: putting the service together.
//! - [`store`]: what is stored beside the runs.
//! - [`profiles`]: the agents of a directory and those that were put.
//! - [`projects`]: profiles, knowledge bases and a first scene under one name.
//! - [`revisions`]: what profiles, scenes and projects were before.
//! - [`knowledge`]: what agents look up and write.
//! - [`conversations`]: turns and appended messages as one conversation.
//! - [`turn_log`]: the log of a turn, read back.
//! - [`runner`]: the I/O of turns.
//! - [`turns`]: starting turns, for callers and for the agents of scenes.
//! - [`scenes`]: the scenes of a directory and those that were put.
//! - [`running_scenes`]: the scenes that run in this process, and what is asked of them.
//! - [`scene_runner`]: the I/O of scenes.
//! - [`rpc`]: the wire.

mod answers;
pub mod conversations;
pub mod error;
pub mod knowledge;
pub mod peers;
pub mod profiles;
mod program;
pub mod projects;
mod questions;
pub mod revisions;
pub mod rpc;
pub mod runner;
pub mod running_scenes;
pub mod scene_runner;
pub mod scenes;
pub mod service;
pub mod settings;
pub mod states;
pub mod store;
pub mod turn_log;
pub mod turns;
mod wire;

pub use error::BuildError;
pub use peers::Peers;
pub use service::{AgentRuntime, Environment, build};
pub use settings::AgentSettings;
