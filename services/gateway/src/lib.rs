//! The network face of the text dialects.
//!
//! The gateway reads a model's text, lets the owner of the new run carry it out, and follows the
//! run for its caller. It stores nothing: a run's id names the service that owns it, so any replica
//! can follow any run.
//!
//! - [`settings`], [`error`], [`peers`], [`service`]: putting the service together.
//! - `domain`: the tools that a text may call.
//! - `catalogues`: the tools of a scope, loaded and cached; `renewed`: loads once for all callers.
//! - `door`: the credentials of clients.
//! - `rpc`: the wire; `edge`: every other way in.
//! - `forward`: the methods of the other services, passed on to them.

mod catalogues;
mod domain;
mod door;
mod edge;
pub mod error;
mod forward;
pub mod peers;
mod program;
mod renewed;
mod rpc;
pub mod service;
pub mod settings;

pub use error::Error;
pub use peers::Peers;
pub use program::GatewayProgram;
pub use service::{Gateway, build};
pub use settings::{GatewaySettings, HttpSettings};
