//! The protocol between the sandbox and its launcher.
//!
//! The service sends a [`plan::LaunchPlan`] with the script's descriptors over a Unix stream socket, and later
//! deliveries of files; the launcher sends [`report::Report`]s. [`channel`] frames both.

pub mod channel;
pub mod plan;
pub mod report;
