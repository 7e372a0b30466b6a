//! The definition and the execution of workflows, without any I/O.
//!
//! A definition text is loaded ([`load`]) into a [`workflow::Workflow`], whichever of its two forms it
//! has, its groups are replaced by the workflows that they refer to ([`flatten`]), and it is
//! compiled ([`compile`]) into a [`plan::Plan`] of integer indices; both report all problems at
//! once, by JSON pointer; [`diagnose`] finds the parts of a definition without effect; the nodes
//! inside zones become plans of their own ([`zone`]). The [`engine`] drives a plan: events in,
//! commands out; [`evaluate`] runs single nodes. Node types are described by [`node_definition`]
//! and implemented through [`node_type`]; the caller that compiles supplies them (the built-in ones
//! are the crate `workflow-nodes`).
//!
//! The crate is synchronous and total: no clock, no randomness, no panic on any input. Effects,
//! storage and waits belong to the crate that drives the engine, `workflow-runner`.

pub mod bundle;
pub mod bypass;
pub mod cache;
pub mod cache_key;
pub mod compile;
pub mod composite;
pub mod config_schema;
pub mod cycle;
pub mod data_flow;
pub mod diagnose;
pub mod duration;
pub mod engine;
pub mod evaluate;
pub mod execution;
pub mod flatten;
pub mod forecast;
pub mod fork;
pub mod gather;
pub mod interface;
pub mod limits;
pub mod load;
pub mod model;
pub mod node_definition;
pub mod node_type;
pub mod plan;
pub mod plan_waits;
pub mod plugin_node;
pub mod references;
pub mod seed;
pub mod size;
pub mod slot;
pub mod stream;
pub mod stream_value;
pub mod tool;
pub mod tool_choice;
pub mod violation;
pub mod wait;
pub mod workflow;
pub mod zone;
