//! The subject of a certificate, and the hosts that it names.

use std::net::IpAddr;

use anyhow::{Context, bail, ensure};
use grpc_kit::{ServiceId, ServiceName, TrustDomain};
use rcgen::SanType;
use rcgen::string::Ia5String;

/// The longest name of a host, in bytes, and the longest part between two of its dots.
const MAX_HOST_BYTES: (usize, usize) = (253, 63);

/// The names by which a host reaches itself.
const OWN: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// The names of files that hold something else than the certificate of a client.
const TAKEN: [&str; 2] = ["ca", "ca-next"];

/// The name or the address of a host, as a certificate states it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Host {
    Name(String),
    Address(IpAddr),
}

impl std::fmt::Display for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(address) => address.fmt(f),
        }
    }
}

impl Host {
    /// Returns the host as rcgen writes it.
    pub(super) fn written(&self) -> anyhow::Result<SanType> {
        Ok(match self {
            Self::Name(name) => SanType::DnsName(Ia5String::try_from(name.as_str())?),
            Self::Address(address) => SanType::IpAddress(*address),
        })
    }
}

/// The subject of a certificate that is no CA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    Service(ServiceId),
    /// A client that is no service.
    Client(TrustDomain, String),
}

impl Subject {
    /// Returns the URI that names the subject.
    pub(super) fn uri(&self) -> String {
        match self {
            Self::Service(id) => id.to_string(),
            Self::Client(domain, name) => format!("{}/client/{name}", domain.uri()),
        }
    }

    /// Returns the name of the subject, which its files have too.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Service(id) => id.service.word(),
            Self::Client(_, name) => name,
        }
    }

    /// Reads a URI; `None` if it names neither a service nor a client.
    pub(super) fn of_uri(uri: &str) -> Option<Self> {
        if let Some(id) = ServiceId::of_uri(uri) {
            return Some(Self::Service(id));
        }
        let (domain, path) = TrustDomain::of_uri(uri)?;
        let name = path.strip_prefix("client/")?;
        client_name(name).ok()?;
        Some(Self::Client(domain, name.to_owned()))
    }
}

/// Returns the subject with a name in a domain: one of the services, or a client.
///
/// # Errors
/// A name that is neither.
pub(super) fn subject(domain: TrustDomain, name: &str, client: bool) -> anyhow::Result<Subject> {
    if client {
        return Ok(Subject::Client(domain, client_name(name)?.to_owned()));
    }
    let service = ServiceName::of_word(name).with_context(|| {
        let words = ServiceName::ALL.map(ServiceName::word).join(", ");
        format!("{name:?} is no service: name some of {words}, or give `--client` for a client")
    })?;
    Ok(Subject::Service(ServiceId { domain, service }))
}

/// Checks the name of a client, which is the name of its files too.
pub(super) fn client_name(name: &str) -> anyhow::Result<&str> {
    let is_allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_');
    let is_name = (1..=63).contains(&name.len()) && name.bytes().all(is_allowed);
    ensure!(
        is_name,
        "{name:?} is no name of a client: give 1 to 63 small letters, digits, `-` and `_`"
    );
    let is_service = ServiceName::of_word(name).is_some();
    ensure!(
        !is_service && !TAKEN.contains(&name),
        "{name:?} is no name of a client: its files are those of {}",
        if is_service { "a service" } else { "a CA" }
    );
    Ok(name)
}

/// Returns the hosts of a subject: those by which a service is reached on its own host and among containers, and
/// further ones.
///
/// # Errors
/// A text that is neither a name of a host nor an address; all such are named.
pub(super) fn hosts(subject: &Subject, further: &[String]) -> anyhow::Result<Vec<Host>> {
    let mut names: Vec<&str> = Vec::new();
    if let Subject::Service(id) = subject {
        names.extend([id.service.word(), id.service.program()]);
        names.extend(OWN);
    }
    names.extend(further.iter().map(String::as_str));
    let mut hosts = Vec::new();
    let mut wrong = Vec::new();
    for name in names {
        match host(name) {
            Some(host) if hosts.contains(&host) => {}
            Some(host) => hosts.push(host),
            None => wrong.push(format!("{name:?}")),
        }
    }
    if !wrong.is_empty() {
        bail!(
            "neither the name of a host nor an address: {}; give `--host` such as tavern.example.com or 10.0.0.7",
            wrong.join(", ")
        );
    }
    Ok(hosts)
}

/// Reads a name or an address; `None` for any other text.
fn host(text: &str) -> Option<Host> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(Host::Address(address));
    }
    let (longest, longest_part) = MAX_HOST_BYTES;
    let is_part = |part: &str| {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        (1..=longest_part).contains(&part.len())
            && part.bytes().all(is_allowed)
            && !part.starts_with('-')
            && !part.ends_with('-')
    };
    // A wildcard stands for one part, below a domain.
    let fixed = text.strip_prefix("*.").filter(|fixed| fixed.contains('.'));
    let last = text.rsplit('.').next().unwrap_or_default();
    let is_number = last.bytes().all(|byte| byte.is_ascii_digit());
    let is_name = text.len() <= longest && fixed.unwrap_or(text).split('.').all(is_part);
    (is_name && !is_number).then(|| Host::Name(text.to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_of_the_services_or_of_a_client() {
        let made = |name: &str, client| {
            let subject = subject(TrustDomain::default(), name, client);
            subject.map(|subject| subject.uri()).ok()
        };
        for service in ServiceName::ALL {
            let uri = format!("spiffe://tavern.internal/tavern/{}", service.word());
            assert_eq!(made(service.word(), false), Some(uri));
            assert_eq!(made(service.word(), true), None);
        }
        let uri = "spiffe://tavern.internal/client/ada-2";
        assert_eq!(made("ada-2", true).as_deref(), Some(uri));
        let long = "a".repeat(64);
        for name in [
            "",
            ".",
            "..",
            "../x",
            "/etc/x",
            "a/b",
            "a\\b",
            "a.b",
            "A",
            "a b",
            "a\n",
            "ca",
            "ca-next",
            "tool-registry/..",
            "é",
            &long,
        ] {
            assert_eq!(made(name, false), None, "{name:?}");
            assert_eq!(made(name, true), None, "{name:?}");
        }
    }

    #[test]
    fn a_host_is_a_name_or_an_address() {
        for (text, expected) in [
            ("localhost", Some("localhost")),
            ("Tavern.Example.COM", Some("tavern.example.com")),
            ("*.example.com", Some("*.example.com")),
            ("10.0.0.7", Some("10.0.0.7")),
            ("::1", Some("::1")),
            ("0:0:0:0:0:0:0:1", Some("::1")),
            ("", None),
            ("*", None),
            ("*.com", None),
            ("a.*.example.com", None),
            ("10.0.0", None),
            ("10.0.0.256", None),
            ("example.com.", None),
            ("a..b", None),
            ("-a.example.com", None),
            ("https://example.com", None),
            ("example.com:443", None),
            ("a b", None),
            ("exa_mple.com", None),
            ("ex\0mple.com", None),
        ] {
            let read = host(text).map(|host| host.to_string());
            assert_eq!(read.as_deref(), expected, "{text:?}");
        }
        assert_eq!(host(&"a.".repeat(127)), None);
    }

    #[test]
    fn a_service_has_the_names_by_which_it_is_reached_and_every_wrong_host_is_named() {
        let gateway = subject(TrustDomain::default(), "registry", false).unwrap();
        let hosts_of = |further: &[&str]| {
            let further: Vec<String> = further.iter().map(|host| (*host).to_owned()).collect();
            let hosts = hosts(&gateway, &further).map_err(|error| error.to_string())?;
            Ok::<_, String>(
                hosts
                    .iter()
                    .map(Host::to_string)
                    .collect::<Vec<_>>()
                    .join(" "),
            )
        };
        let own = "registry tool-registry localhost 127.0.0.1 ::1";
        assert_eq!(hosts_of(&[]).as_deref(), Ok(own));
        let more = hosts_of(&["localhost", "10.0.0.7"]);
        assert_eq!(more, Ok(format!("{own} 10.0.0.7")));
        let wrong = hosts_of(&["a b", "good.example.com", "c/d"]).unwrap_err();
        assert!(wrong.contains("\"a b\", \"c/d\""), "{wrong}");
    }
}
