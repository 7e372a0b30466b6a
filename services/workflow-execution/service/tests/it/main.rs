//! The service as its callers see it, in process, with doubles of the services that it needs.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed step fails the test"
)]

mod agents;
mod cache;
mod calls;
mod cancel;
mod checkpoints;
mod concurrency;
mod definitions;
mod examples;
mod execution;
mod forks;
mod grants;
mod histories;
mod history;
mod models;
mod node_types;
mod pause;
mod principals;
mod queue;
mod rests;
mod resume;
mod runs;
mod runs_below;
mod schedules;
mod simulation;
mod streams;
mod support;
mod tenant_ends;
mod tenants;
mod tool_choice;
mod unanswered;
mod value_streams;
mod waits;
mod zones;
