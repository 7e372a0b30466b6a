//! The log of a turn: its events as changes of its state, and forks.
//!
//! The crate is pure: it takes events and returns values.
//!
//! - [`journal`]: one event of the contract as a change of the turn.
//! - [`state`]: the one fold of a log, live and read back; [`replay`]: its opening, its times, its errors.
//! - [`fork`]: the events that a fork begins with; [`forked`]: the answer and the results that it takes over.
//! - [`wire`]: messages and budgets as messages of the contract.

pub mod fork;
pub mod forked;
pub mod journal;
pub mod replay;
pub mod state;
pub mod wire;
