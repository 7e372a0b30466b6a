//! Agents and the deliberate-act-observe loop.
//!
//! A turn begins with a message of a user, or with a text that a model wrote for a caller. The
//! model receives the agent's instructions, its tools and the conversation; its answer is read; its
//! calls go to tool-registry one by one; the model reads their results, until it answers without a
//! call or a budget ends. Every step is in the run's log before it has an effect, so that a turn
//! survives its process.
//!
//! The decisions of agents are the crate [`agent_domain`], their stored documents and states
//! [`agent_store`], and language models are [`model_client`]. This crate combines and serves them:
//!
//! - [`settings`], [`error`], [`peers`], [`service`]: putting the service together.
//! - [`states`]: private states, goals and world states.
//! - `tenants`: the uses of tenants, and the removal of their data.
//! - [`running_scenes`]: the scenes that run in this process, and the requests to them.
//! - [`runner`]: starting turns and carrying them out, scenes, answers to questions.
//! - [`rpc`]: the wire; `wire`: its messages that the runner writes too.

pub mod error;
pub mod knowledge_override;
pub mod peers;
mod program;
pub mod rpc;
pub mod runner;
pub mod running_scenes;
pub mod service;
pub mod settings;
pub mod states;
mod tenants;
mod wire;

pub use agent_store::store::SERVER_MIGRATIONS;
pub use error::Error;
pub use peers::Peers;
pub use service::{AgentRuntime, DATA, Environment, build, build_at, index_knowledge};
pub use settings::AgentSettings;
