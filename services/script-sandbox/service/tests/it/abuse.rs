//! Hostile programs, by family. Each meets every kind of host that this machine can be.

mod attempts;
pub(crate) mod controls;
mod exhaustion;
mod files;
mod flushing;
mod hardware;
mod kernel;
mod leaders;
mod locks;
mod memory;
mod native;
mod network;
mod node;
mod options;
mod secrets;
mod share;
mod sockets;
mod trees;
mod uncounted;
