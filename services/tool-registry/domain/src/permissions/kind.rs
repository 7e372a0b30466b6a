//! The kinds of permissions, and whether each works already.

/// A kind of permission. Plans list permissions in the order of this enum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PermissionKind {
    /// `network`: TLS to one host.
    Network,
    /// `secrets`: the value of a secret.
    Secrets,
    /// `hooks` of the form `hook:server:<point>`.
    ServerHooks,
    /// `services.override`: standing in for a service.
    ServiceOverride,
    /// `tools.call`: calling a tool.
    ToolCall,
    /// `storage`: a directory that stays between calls.
    Storage,
    /// `hooks` of the form `hook:client:<point>`.
    ClientHooks,
    /// `ui.inject`: a part in an outlet.
    UiInject,
    /// `ui.wrap`: a frame around a component.
    UiWrap,
    /// `ui.override`: another component in the place of one.
    UiOverride,
    /// `services.read`: read-only tools of an area.
    ServiceRead,
    /// `files.workspace`: the files of the conversation.
    Workspace,
    /// `resources`: more than the default limits.
    Resources,
    /// `packages`: a package set.
    Packages,
}

/// Whether a permission works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PermissionState {
    /// It is granted by an approved plan, and enforced.
    InForce,
    /// It is shown, and grants nothing on this server.
    Listed,
    /// It cannot be granted, so an install that asks for it is refused.
    NotYet,
}

use PermissionKind as Kind;
use PermissionState::{InForce, Listed, NotYet};

/// The beginning of the canonical spelling of each kind, and its state: the one place that turns a
/// permission on.
const KINDS: [(Kind, &str, PermissionState); 14] = [
    (Kind::Network, "network", NotYet),
    (Kind::Secrets, "secrets", NotYet),
    (Kind::ServerHooks, "hooks:hook:server", InForce),
    (Kind::ServiceOverride, "services.override", InForce),
    (Kind::ToolCall, "tools.call", NotYet),
    (Kind::Storage, "storage", InForce),
    (Kind::ClientHooks, "hooks:hook:client", Listed),
    (Kind::UiInject, "ui.inject", Listed),
    (Kind::UiWrap, "ui.wrap", Listed),
    (Kind::UiOverride, "ui.override", Listed),
    (Kind::ServiceRead, "services.read", NotYet),
    (Kind::Workspace, "files.workspace", InForce),
    (Kind::Resources, "resources", InForce),
    (Kind::Packages, "packages", InForce),
];

impl PermissionKind {
    /// Returns all kinds in their order.
    pub fn all() -> impl Iterator<Item = Self> {
        KINDS.iter().map(|(kind, ..)| *kind)
    }

    /// Whether permissions of this kind work.
    pub fn state(self) -> PermissionState {
        KINDS[self as usize].2
    }

    /// Returns the beginning of the canonical spelling, without the colon behind it.
    pub fn prefix(self) -> &'static str {
        KINDS[self as usize].1
    }
}
