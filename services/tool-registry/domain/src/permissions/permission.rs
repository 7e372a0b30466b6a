//! One permission: its kind, its risk, its sentence.

use approval_rules::EffectClass;
use serde::{Deserialize, Serialize};

use super::{
    kind::PermissionKind,
    resources::{ResourceRequest, bytes_in_words},
};
use crate::hook_point::HookPoint;

/// The ends of host names that are not public.
const PRIVATE_ENDS: [&str; 9] = [
    "local",
    "localhost",
    "internal",
    "intranet",
    "lan",
    "home",
    "corp",
    "private",
    "home.arpa",
];

/// The harm that a permission can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Risk {
    /// It reaches nothing but the plugin itself.
    Low,
    /// It reads foreign data, or changes the page.
    Medium,
    /// It changes foreign data, or decides in the place of others.
    High,
}

impl Risk {
    /// Returns the word of plans.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// The access to the files of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WorkspaceAccess {
    /// Reading.
    Read,
    /// Reading and writing.
    Write,
}

/// One permission. Its `Display` is the canonical spelling, which `FromStr` reads back.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Permission {
    /// TLS to exactly this host.
    Network {
        /// The host name, in lower case.
        host: String,
        /// The port.
        port: u16,
    },
    /// The value of a secret, in the options file of its scripts.
    Secret {
        /// The name of the secret.
        name: String,
    },
    /// Running a hook on the server.
    ServerHook {
        /// The point.
        point: HookPoint,
    },
    /// Standing in for a service.
    ServiceOverride {
        /// One of [`super::OVERRIDABLE_SERVICES`].
        service: String,
    },
    /// Calling a tool.
    ToolCall {
        /// The id of the tool.
        tool_id: String,
    },
    /// A directory that stays between calls.
    Storage {
        /// The most bytes in it.
        bytes: u64,
    },
    /// Running a hook in the page.
    ClientHook {
        /// The point, as front ends name it.
        point: String,
    },
    /// A part in an outlet of the page.
    UiInject {
        /// The outlet.
        outlet: String,
    },
    /// A frame around a component of the page.
    UiWrap {
        /// The component.
        component: String,
    },
    /// Another component in the place of one of the page.
    UiOverride {
        /// The component.
        component: String,
    },
    /// The read-only tools of a service.
    ServiceRead {
        /// One of [`super::READABLE_SERVICES`].
        area: String,
    },
    /// The files of the conversation.
    Workspace {
        /// Reading, or writing too.
        access: WorkspaceAccess,
    },
    /// More than the default limits.
    Resources(ResourceRequest),
    /// A package set.
    Packages {
        /// The name of the set.
        set: String,
    },
}

impl Permission {
    /// Returns the kind.
    pub fn kind(&self) -> PermissionKind {
        match self {
            Self::Network { .. } => PermissionKind::Network,
            Self::Secret { .. } => PermissionKind::Secrets,
            Self::ServerHook { .. } => PermissionKind::ServerHooks,
            Self::ServiceOverride { .. } => PermissionKind::ServiceOverride,
            Self::ToolCall { .. } => PermissionKind::ToolCall,
            Self::Storage { .. } => PermissionKind::Storage,
            Self::ClientHook { .. } => PermissionKind::ClientHooks,
            Self::UiInject { .. } => PermissionKind::UiInject,
            Self::UiWrap { .. } => PermissionKind::UiWrap,
            Self::UiOverride { .. } => PermissionKind::UiOverride,
            Self::ServiceRead { .. } => PermissionKind::ServiceRead,
            Self::Workspace { .. } => PermissionKind::Workspace,
            Self::Resources(_) => PermissionKind::Resources,
            Self::Packages { .. } => PermissionKind::Packages,
        }
    }

    /// Returns the risk. The risk of calling a tool follows from its effects; `effects` gives them,
    /// none for a tool that is not known, of which the worst is assumed.
    pub fn risk(&self, effects: impl Fn(&str) -> Option<EffectClass>) -> Risk {
        match self {
            Self::Network { host, .. } if is_private(host) => Risk::High,
            Self::ServerHook { point } if point.is_before() => Risk::High,
            Self::Workspace {
                access: WorkspaceAccess::Write,
            } => Risk::High,
            Self::ToolCall { tool_id } => match effects(tool_id) {
                Some(EffectClass::ReadOnly) => Risk::Low,
                Some(EffectClass::Idempotent | EffectClass::SideEffecting) => Risk::Medium,
                Some(EffectClass::Destructive) | None => Risk::High,
            },
            Self::Secret { .. } | Self::ServiceOverride { .. } | Self::UiOverride { .. } => {
                Risk::High
            }
            Self::Network { .. }
            | Self::ServerHook { .. }
            | Self::UiInject { .. }
            | Self::UiWrap { .. }
            | Self::ServiceRead { .. }
            | Self::Workspace { .. } => Risk::Medium,
            Self::Storage { .. }
            | Self::ClientHook { .. }
            | Self::Resources(_)
            | Self::Packages { .. } => Risk::Low,
        }
    }

    /// Returns one sentence about the power that it gives.
    pub fn sentence(&self) -> String {
        match self {
            Self::Network { host, port } if *port == super::DEFAULT_PORT => {
                format!("Talks to {host}.")
            }
            Self::Network { host, port } => format!("Talks to {host}, on port {port}."),
            Self::Secret { name } => format!("Reads the secret {name}."),
            Self::ServerHook { point } => point.sentence(),
            Self::ServiceOverride { service } => format!("Replaces {service} for all users."),
            Self::ToolCall { tool_id } => format!("Calls {tool_id}."),
            Self::Storage { bytes } => {
                format!("Keeps up to {} of its own data.", bytes_in_words(*bytes))
            }
            Self::ClientHook { point } => format!("Runs in the page when {point} happens."),
            Self::UiInject { outlet: component }
            | Self::UiWrap { component }
            | Self::UiOverride { component } => format!("Changes how {component} looks."),
            Self::ServiceRead { area } => {
                let all = match area.as_str() {
                    "workflow" => "workflows",
                    "agent" => "agents",
                    _ => "tools and plugins",
                };
                format!("Reads {all} with the rights of its caller.")
            }
            Self::Workspace {
                access: WorkspaceAccess::Read,
            } => "Reads the files of the conversation.".to_owned(),
            Self::Workspace {
                access: WorkspaceAccess::Write,
            } => "Reads and changes the files of the conversation.".to_owned(),
            Self::Resources(limits) => format!("Uses up to {}.", limits.words()),
            Self::Packages { set } => format!("Uses the packages {set}."),
        }
    }

    /// Whether both are about the same object, whatever the amount: two storages, two accesses to
    /// the workspace, the same host.
    pub fn is_about_the_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Storage { .. }, Self::Storage { .. })
            | (Self::Workspace { .. }, Self::Workspace { .. })
            | (Self::Resources(_), Self::Resources(_)) => true,
            _ => self == other,
        }
    }

    /// Whether it gives all that `wanted` asks for.
    pub fn covers(&self, wanted: &Self) -> bool {
        match (self, wanted) {
            (Self::Storage { bytes: most }, Self::Storage { bytes }) => bytes <= most,
            (Self::Workspace { access: most }, Self::Workspace { access }) => access <= most,
            (Self::Resources(most), Self::Resources(limits)) => limits.is_within(most),
            _ => self == wanted,
        }
    }
}

/// Whether a host name is not public: a single word, or one of the ends that are kept for private
/// networks.
fn is_private(host: &str) -> bool {
    let ends = |end: &str| {
        let before = host.strip_suffix(end);
        before.is_some_and(|before| before.is_empty() || before.ends_with('.'))
    };
    !host.contains('.') || PRIVATE_ENDS.into_iter().any(ends)
}
