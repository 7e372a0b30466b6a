//! The log of a turn: events of the contract as what they mean to the turn, and turns read back.

pub mod history;
pub mod journal;
pub mod replay;
