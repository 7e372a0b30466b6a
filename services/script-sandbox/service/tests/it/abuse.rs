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

/// Programs of each family in Python that end by themselves.
pub(crate) fn programs() -> [&'static str; 8] {
    [
        attempts::OWN_LISTENER,
        exhaustion::OPEN_FILES,
        exhaustion::ZOMBIES,
        files::OTHERS_DIRECTORIES,
        files::BITS_AND_ATTRIBUTES,
        files::DEVICES,
        network::SOCKETS,
        secrets::LOOKS_FOR_SECRETS,
    ]
}
