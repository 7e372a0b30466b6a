//! All five services in one process.
//!
//! [`Tavern`] combines the public types that the single programs use, and lets them reach each
//! other in memory. The binary `tavern` serves it, and plays transcripts against it.

pub mod assemble;
pub mod settings;

pub use assemble::Tavern;
pub use settings::TavernSettings;
