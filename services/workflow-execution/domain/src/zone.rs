//! Zones: nodes that repeat the nodes inside them (rules W9 to W17).
//!
//! The nodes inside become a plan of their own ([`split`]), which the same [`super::engine`] drives once
//! for each iteration ([`body`]). [`iterations`] makes the inputs of each iteration and takes its
//! outputs; it keeps the values that are carried and collected, and nothing else of an iteration
//! that is over.
//!
//! Where nodes inside have effects, the runner records each iteration and its events, so a zone
//! that a crash interrupts continues there. Otherwise a [`run::ZoneRun`] runs the iterations in
//! memory, and begins again after a crash.

pub mod body;
pub mod iterations;
pub mod list;
pub mod repeat;
pub mod run;
pub mod settings;
pub mod split;
