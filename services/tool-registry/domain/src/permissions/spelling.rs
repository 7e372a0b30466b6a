//! The canonical spelling of a permission, written and read.

use std::{fmt, str::FromStr};

use super::{
    kind::PermissionKind as Kind,
    permission::{Permission, WorkspaceAccess},
    resources::ResourceRequest,
};
use crate::hook_point::HookPoint;

/// A text that is not the canonical spelling of a permission.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a permission")]
pub struct UnknownSpelling(String);

impl fmt::Display for Permission {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:", self.kind().prefix())?;
        match self {
            Self::Network { host, port } => write!(formatter, "{host}:{port}"),
            Self::Secret { name } => formatter.write_str(name),
            Self::ServerHook { point } => write!(formatter, "{point}"),
            Self::ServiceOverride { service } => formatter.write_str(service),
            Self::ToolCall { tool_id } => formatter.write_str(tool_id),
            Self::Storage { bytes } => write!(formatter, "{bytes}"),
            Self::ClientHook { point } => formatter.write_str(point),
            Self::UiInject { outlet } => formatter.write_str(outlet),
            Self::UiWrap { component } | Self::UiOverride { component } => {
                formatter.write_str(component)
            }
            Self::ServiceRead { area } => formatter.write_str(area),
            Self::Workspace { access } => formatter.write_str(match access {
                WorkspaceAccess::Read => "read",
                WorkspaceAccess::Write => "write",
            }),
            Self::Resources(limits) => {
                let each = limits
                    .stated()
                    .map(|(name, value)| format!("{name} {value}"));
                formatter.write_str(&each.collect::<Vec<_>>().join(", "))
            }
            Self::Packages { set } => formatter.write_str(set),
        }
    }
}

impl TryFrom<String> for Permission {
    type Error = UnknownSpelling;

    fn try_from(text: String) -> Result<Self, UnknownSpelling> {
        text.parse()
    }
}

impl From<Permission> for String {
    fn from(permission: Permission) -> Self {
        permission.to_string()
    }
}

impl FromStr for Permission {
    type Err = UnknownSpelling;

    fn from_str(text: &str) -> Result<Self, UnknownSpelling> {
        parse(text).ok_or_else(|| UnknownSpelling(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<Permission> {
    let (kind, rest) = Kind::all().find_map(|kind| {
        let rest = text.strip_prefix(kind.prefix())?.strip_prefix(':')?;
        (!rest.is_empty()).then_some((kind, rest))
    })?;
    let name = rest.to_owned();
    Some(match kind {
        Kind::Network => {
            let (host, port) = rest.rsplit_once(':')?;
            let port = port.parse().ok()?;
            Permission::Network {
                host: host.to_owned(),
                port,
            }
        }
        Kind::Secrets => Permission::Secret { name },
        Kind::ServerHooks => Permission::ServerHook {
            point: HookPoint::parse(rest)?,
        },
        Kind::ServiceOverride => Permission::ServiceOverride { service: name },
        Kind::ToolCall => Permission::ToolCall { tool_id: name },
        Kind::Storage => Permission::Storage {
            bytes: rest.parse().ok()?,
        },
        Kind::ClientHooks => Permission::ClientHook { point: name },
        Kind::UiInject => Permission::UiInject { outlet: name },
        Kind::UiWrap => Permission::UiWrap { component: name },
        Kind::UiOverride => Permission::UiOverride { component: name },
        Kind::ServiceRead => Permission::ServiceRead { area: name },
        Kind::Workspace => Permission::Workspace {
            access: match rest {
                "read" => WorkspaceAccess::Read,
                "write" => WorkspaceAccess::Write,
                _ => return None,
            },
        },
        Kind::Resources => {
            let mut limits = ResourceRequest::default();
            for each in rest.split(", ") {
                let (name, value) = each.split_once(' ')?;
                limits.set(name, value.parse().ok()?).then_some(())?;
            }
            Permission::Resources(limits)
        }
        Kind::Packages => Permission::Packages { set: name },
    })
}
