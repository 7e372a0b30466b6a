//! The log of a turn: events of the contract as what they mean to the turn, turns read back, and forked.

pub mod fork;
pub mod forked;
pub mod history;
pub mod journal;
pub mod replay;
