//! What an agent is, how its turn goes and what happens in a scene, as pure functions.
//!
//! Nothing in here waits, asks the time or touches a wire type, so that every history can be
//! replayed in a test: the crate is synchronous and names no tonic, prost, sqlx or tokio. The service
//! around it asks models, calls tools, stores and sends.
//!
//! Reading order: [`profile`] reads an agent's file, [`plan`] freezes what a turn needs to be resumed,
//! [`turn`] is the state machine, [`reading`] decides what the calls of an answer come to,
//! [`observation`] words what the model reads, [`prompt`] puts a request to the model together,
//! [`budgets`] and [`usage`] count what it costs. [`scene`] reads the file of a scene, and [`channel`]
//! decides which events wait for which of its agents. [`state`], [`goals`] and [`knowledge`] are what
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
