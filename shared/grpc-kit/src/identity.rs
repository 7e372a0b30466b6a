//! The identity of a service: the URI by which its certificate names it.

use std::{fmt, str::FromStr};

use contracts::tavern::access::v1::Peer;

/// The longest domain, in bytes, as SPIFFE states it.
const MAX_DOMAIN_BYTES: usize = 255;

/// One of the five services, by the word for it in certificates, settings and the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServiceName {
    /// gateway.
    Gateway,
    /// tool-registry.
    Registry,
    /// workflow-execution.
    Workflow,
    /// script-sandbox.
    Sandbox,
    /// agent-runtime.
    Agent,
}

impl ServiceName {
    /// All services.
    pub const ALL: [Self; 5] = [
        Self::Gateway,
        Self::Registry,
        Self::Workflow,
        Self::Sandbox,
        Self::Agent,
    ];

    /// Returns the word for the service.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Registry => "registry",
            Self::Workflow => "workflow",
            Self::Sandbox => "sandbox",
            Self::Agent => "agent",
        }
    }

    /// Returns the service of a word.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|name| name.word() == word)
    }

    /// Returns the service whose program has a name.
    pub fn of_program(program: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|name| name.program() == program)
    }

    /// Returns the name of the service's program.
    pub const fn program(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Registry => "tool-registry",
            Self::Workflow => "workflow-execution",
            Self::Sandbox => "script-sandbox",
            Self::Agent => "agent-runtime",
        }
    }

    /// Returns the caller that the contract admits to methods; [`Peer::Unspecified`] for script-sandbox, which calls
    /// nothing.
    pub const fn peer(self) -> Peer {
        match self {
            Self::Gateway => Peer::Gateway,
            Self::Registry => Peer::ToolRegistry,
            Self::Workflow => Peer::WorkflowExecution,
            Self::Sandbox => Peer::Unspecified,
            Self::Agent => Peer::AgentRuntime,
        }
    }
}

/// The domain within which services believe each other: a name in lower case, such as `tavern.internal`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustDomain(String);

impl TrustDomain {
    /// The domain where no other is chosen; `.internal` is reserved for private use.
    pub const DEFAULT: &str = "tavern.internal";

    /// Returns the URI that names the domain itself, in the certificate of its CA.
    pub fn uri(&self) -> String {
        format!("spiffe://{self}")
    }

    /// Returns the domain that a URI names, and the path below it without the slash, which is empty for the domain
    /// itself; `None` for a text that is no SPIFFE id.
    pub fn of_uri(uri: &str) -> Option<(Self, &str)> {
        let rest = uri.strip_prefix("spiffe://")?;
        let (domain, path) = match rest.split_once('/') {
            Some((_, "")) => return None,
            Some(parts) => parts,
            None => (rest, ""),
        };
        Some((domain.parse().ok()?, path))
    }
}

impl Default for TrustDomain {
    fn default() -> Self {
        Self(Self::DEFAULT.to_owned())
    }
}

impl fmt::Display for TrustDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A text is not a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not a domain of 1 to {MAX_DOMAIN_BYTES} small letters, digits, `.`, `-` and `_`")]
pub struct NotADomain;

impl FromStr for TrustDomain {
    type Err = NotADomain;

    fn from_str(text: &str) -> Result<Self, NotADomain> {
        let is_allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-' | b'_');
        let is_name = (1..=MAX_DOMAIN_BYTES).contains(&text.len()) && text.bytes().all(is_allowed);
        match is_name {
            true => Ok(Self(text.to_owned())),
            false => Err(NotADomain),
        }
    }
}

/// The identity of a service: `spiffe://<domain>/tavern/<service>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceId {
    /// The domain.
    pub domain: TrustDomain,
    /// The service.
    pub service: ServiceName,
}

impl ServiceId {
    /// Returns the service that a URI names; `None` for every other text.
    pub fn of_uri(uri: &str) -> Option<Self> {
        let (domain, path) = TrustDomain::of_uri(uri)?;
        let service = ServiceName::of_word(path.strip_prefix("tavern/")?)?;
        Some(Self { domain, service })
    }
}

impl fmt::Display for ServiceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "spiffe://{}/tavern/{}", self.domain, self.service.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identity_of_each_service_is_read_as_it_is_written() {
        for service in ServiceName::ALL {
            let domain = TrustDomain::default();
            let id = ServiceId { domain, service };
            let uri = id.to_string();
            assert_eq!(
                uri,
                format!("spiffe://tavern.internal/tavern/{}", service.word())
            );
            assert_eq!(ServiceId::of_uri(&uri), Some(id));
        }
    }

    #[test]
    fn a_uri_that_is_no_identity_of_a_service_names_none() {
        for uri in [
            "",
            "gateway",
            "spiffe://",
            "spiffe:///tavern/gateway",
            "spiffe://tavern.internal",
            "spiffe://tavern.internal/",
            "spiffe://tavern.internal/gateway",
            "spiffe://tavern.internal/tavern",
            "spiffe://tavern.internal/tavern/",
            "spiffe://tavern.internal/tavern/gateway/",
            "spiffe://tavern.internal/tavern/gateway/x",
            "spiffe://tavern.internal/tavern/../tavern/gateway",
            "spiffe://tavern.internal//tavern/gateway",
            "spiffe://tavern.internal/tavern/Gateway",
            "spiffe://tavern.internal/tavern/gateway?x",
            "spiffe://tavern.internal/tavern/gateway#x",
            "spiffe://tavern.internal/tavern/gatewa%79",
            "spiffe://tavern.internal/tavern/gateway\0",
            "spiffe://tavern.internal/tavern/tool-registry",
            "spiffe://tavern.internal/client/gateway",
            "spiffe://Tavern.internal/tavern/gateway",
            "spiffe://tavern.internal:443/tavern/gateway",
            "spiffe://me@tavern.internal/tavern/gateway",
            "SPIFFE://tavern.internal/tavern/gateway",
            "https://tavern.internal/tavern/gateway",
        ] {
            assert_eq!(ServiceId::of_uri(uri), None, "{uri:?}");
        }
        let long = format!("spiffe://{}/tavern/gateway", "d".repeat(256));
        assert_eq!(ServiceId::of_uri(&long), None);
    }
}
