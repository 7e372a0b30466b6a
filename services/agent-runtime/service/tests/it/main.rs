//! Black-box tests: whole turns with a named double of the registry.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod compaction;
mod conversations;
#[path = "../../../model-client/tests/it/endpoint.rs"]
mod endpoint;
mod forks;
mod grammars;
mod handles;
mod knowledge;
mod models;
mod nonces;
mod principals;
mod profiles;
mod projects;
mod replays;
mod retention;
mod revisions;
mod scenes;
mod shipped;
mod sleeping;
mod states;
mod tenants;
mod tool_scope;
mod turns;
mod turns_budgets;
mod turns_early;
mod turns_ending;
mod turns_history;
mod turns_queue;
mod turns_repairs;
mod turns_steering;
mod turns_together;
mod turns_usage;
mod world;
