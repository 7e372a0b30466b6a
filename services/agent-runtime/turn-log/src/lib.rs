//! The log of a turn: its events as changes of the turn, earlier turns read back, and forks.
//!
//! The crate is pure but for [`history::turn`], which reads one log.
//!
//! - [`journal`]: one event of the contract as a change of the turn.
//! - [`state`]: the one fold of a log, live and read back; [`replay`]: what else a log holds.
//! - [`history`]: the earlier turns of a conversation.
//! - [`fork`]: the events that a fork begins with; [`forked`] marks the calls that it may not repeat.
//! - [`wire`]: messages and budgets as messages of the contract.

pub mod fork;
pub mod forked;
pub mod history;
pub mod journal;
pub mod replay;
pub mod state;
pub mod wire;
