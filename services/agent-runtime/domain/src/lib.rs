//! The definitions of agents, the course of a turn and the queues of a scene, as pure functions.
//!
//! No function here waits, reads the clock or names a wire type, so that every history can be
//! replayed in a test: the crate is synchronous and names no tonic, prost, sqlx or tokio. The
//! service around it calls models and tools, stores and sends.
//!
//! Reading order: [`profile`] reads an agent's file, [`plan`] freezes the data that resume a turn,
//! [`turn`] is the state machine, [`reading`] decides on each call of an answer, [`observation`]
//! words the notices to the model, [`prompt`] puts a request to the model together, [`budgets`] and
//! [`usage`] count its cost. [`scene`] reads the file of a scene, and [`channel`] decides which
//! events wait for which of its agents. [`state`], [`goals`] and [`knowledge`] hold the data that
//! agents read and change.

pub mod budgets;
pub mod channel;
pub mod compaction;
pub mod deliberation;
pub mod document;
pub mod event;
pub mod goals;
pub mod knowledge;
pub mod message;
pub mod observation;
pub mod plan;
pub mod profile;
pub mod project;
pub mod prompt;
pub mod reading;
pub mod reduction;
pub mod scene;
pub mod sleep;
pub mod spelling;
pub mod state;
pub mod subscription;
pub mod turn;
pub mod usage;
pub mod waits;
