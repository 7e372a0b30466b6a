//! Zones: nodes that repeat the nodes inside them (rules W9 to W17).
//!
//! The nodes inside become a plan of their own ([`split`]), which the same [`super::engine`] drives once
//! for each iteration. A [`run::ZoneRun`] goes through the iterations: [`iterations`] says what each is
//! given and what becomes of what it gave. It keeps the values that are carried and collected, and
//! nothing else of an iteration that is over.
//!
//! Nodes inside have no effects, so a zone that a crash interrupts begins again.

pub mod iterations;
pub mod list;
pub mod repeat;
pub mod run;
pub mod settings;
pub mod split;

#[cfg(test)]
mod tests;
