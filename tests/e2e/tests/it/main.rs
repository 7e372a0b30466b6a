//! Black-box tests over the wire: Tavern as processes, asked as any other backend would ask.
#![expect(clippy::panic, reason = "a test fails by panicking")]

mod cancel;
mod cells;
mod command_line;
mod console;
mod containers;
mod deliberation;
mod dialects;
mod drain;
mod early;
mod edges;
mod errors;
mod faults;
mod follow;
mod followers;
mod foreign;
mod forms;
mod forward;
mod kills;
mod ledger;
mod left_files;
mod metrics;
mod once;
mod progress;
mod questions;
mod requests;
mod rules;
mod same_task;
mod scenes;
mod schedules;
mod streams;
mod text;
mod trace;
mod transcripts;
mod waits;
mod workflows;
