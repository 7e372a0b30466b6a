//! Settings of the gateway.

use grpc_kit::{ClientSettings, ServerSettings, ServiceName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use settings::Problems;
use telemetry::TelemetrySettings;

/// The largest text that can be allowed, in bytes.
const MOST_TEXT: usize = 1024 * 1024;

/// The longest address for links that can be set, in bytes.
const MOST_URL: usize = 2048;

/// Settings of the gateway; environment variables begin with `TAVERN_GATEWAY__`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GatewaySettings {
    /// The listener and its limits. Default address: 127.0.0.1:7401.
    pub server: ServerSettings,
    /// Logs, traces and metrics.
    pub telemetry: TelemetrySettings,
    /// The address of tool-registry. Default: http://127.0.0.1:7402.
    pub registry: ClientSettings,
    /// The address of workflow-execution. Default: http://127.0.0.1:7403.
    pub workflow: ClientSettings,
    /// The address of script-sandbox, whose methods are forwarded. Default: http://127.0.0.1:7404.
    pub sandbox: ClientSettings,
    /// The address of agent-runtime. Default: http://127.0.0.1:7405.
    pub agent: ClientSettings,
    /// Access by all protocols except gRPC.
    pub http: HttpSettings,
    /// The largest text that is read, in bytes. Default and most: 1MiB.
    #[serde(with = "settings::SizeText")]
    pub max_text: usize,
}

/// Access by plain HTTP, and with it by Connect, gRPC-Web, WebSocket and event streams. By default only
/// clients and pages of this machine may call.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct HttpSettings {
    /// Names of the server in addition to those of loopback, without port, such as
    /// `tavern.example.com`. Requests for other hosts are refused with 421. Default: none.
    pub hosts: Vec<String>,
    /// Origins of web pages that may call, such as `https://app.example.com`, in addition to the
    /// pages that the gateway serves itself. Requests from other pages are refused with 403.
    /// Default: none.
    pub origins: Vec<String>,
    /// Addresses of proxies in front of the gateway, such as `127.0.0.1` or `10.0.0.0/8`. Their
    /// `x-forwarded-proto` and `x-forwarded-host` state the address at which a client reached the
    /// gateway, so that its own pages may call over https; a listed proxy must overwrite both
    /// headers of its clients. Headers of other peers are ignored. The proxies of
    /// `server.tls.terminated_by_proxy` count as listed. Default: none.
    pub proxies: Vec<String>,
    /// The profile id of the agent whose card is served at `/.well-known/agent-card.json`; every
    /// agent has one below `/a2a/AGENT` too. Default: the first agent by id.
    pub a2a_agent: String,
    /// The address at which clients reach the gateway, such as `https://tavern.example.com`, for links in the answers
    /// of the chat API of OpenAI: with it, and while no key exists, a picture that a call showed is a link in the
    /// answer. At most 2048 bytes. Default: none, and a picture is named only.
    pub public_url: String,
}

impl HttpSettings {
    fn check(&self, key: &str, problems: &mut Problems) {
        let is_host = |host: &str| {
            let authority: Option<http::uri::Authority> = host.parse().ok();
            authority.is_some_and(|authority| {
                authority.host() == host && host != "*" && !host.is_empty()
            })
        };
        let is_origin = |origin: &str| {
            let Some((scheme, rest)) = origin.split_once("://") else {
                return false;
            };
            let authority: Option<http::uri::Authority> = rest.parse().ok();
            matches!(scheme, "http" | "https")
                && authority.is_some_and(|authority| is_host(authority.host()))
                && !rest.contains(['@', '*'])
        };
        for (index, host) in self.hosts.iter().enumerate() {
            if !is_host(host) {
                let what = "is not the name of a host";
                let remedy = "give a name without scheme and port such as tavern.example.com";
                problems.add(format!("{key}.hosts[{index}]"), what, remedy);
            }
        }
        for (index, origin) in self.origins.iter().enumerate() {
            if !is_origin(origin) {
                let what = "is not an origin";
                let remedy = "give scheme and host without a path, such as https://app.example.com";
                problems.add(format!("{key}.origins[{index}]"), what, remedy);
            }
        }
        grpc_kit::tls::proxies::check(&format!("{key}.proxies"), &self.proxies, problems);
        if !self.public_url.is_empty() && !is_public_url(&self.public_url) {
            let what = "is not an address for links";
            let remedy = "give scheme and host, and a path if there is one, without a user, a query and a fragment, \
                          such as https://tavern.example.com";
            problems.add(format!("{key}.public_url"), what, remedy);
        }
    }
}

/// Whether a text is an address that begins links: http or https, a host, perhaps a port and a path.
fn is_public_url(text: &str) -> bool {
    let is_plain =
        |character: char| character.is_ascii_graphic() && !"?#()<>\\\"".contains(character);
    let Ok(address) = text.parse::<http::Uri>() else {
        return false;
    };
    let authority = address.authority().map(http::uri::Authority::as_str);
    text.len() <= MOST_URL
        && text.chars().all(is_plain)
        && matches!(address.scheme_str(), Some("http" | "https"))
        && authority.is_some_and(|authority| !authority.contains(['@', '*']))
}

impl Default for GatewaySettings {
    fn default() -> Self {
        Self {
            server: ServerSettings {
                listen: ([127, 0, 0, 1], 7401).into(),
                ..ServerSettings::default()
            },
            telemetry: TelemetrySettings::default(),
            registry: ClientSettings::to("http://127.0.0.1:7402"),
            workflow: ClientSettings::to("http://127.0.0.1:7403"),
            sandbox: ClientSettings::to("http://127.0.0.1:7404"),
            agent: ClientSettings::to("http://127.0.0.1:7405"),
            http: HttpSettings::default(),
            max_text: MOST_TEXT,
        }
    }
}

impl settings::Settings for GatewaySettings {
    const PREFIX: &'static str = "TAVERN_GATEWAY";

    const REPLACED: &'static [(&'static str, &'static str)] = grpc_kit::settings::REPLACED;

    fn check(&self, problems: &mut Problems) {
        self.server
            .check_service("server", ServiceName::Gateway, problems);
        self.telemetry.check("telemetry", problems);
        self.registry
            .check_beside("registry", (&self.server, ServiceName::Registry), problems);
        self.workflow
            .check_beside("workflow", (&self.server, ServiceName::Workflow), problems);
        self.sandbox
            .check_beside("sandbox", (&self.server, ServiceName::Sandbox), problems);
        self.agent
            .check_beside("agent", (&self.server, ServiceName::Agent), problems);
        self.http.check("http", problems);
        if !(1..=MOST_TEXT).contains(&self.max_text) {
            problems.add("max_text", "is out of range", "give a size from 1B to 1MiB");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_for_links_has_no_secret_and_no_parameters() {
        for (address, is_good) in [
            ("https://tavern.example.com", true),
            ("http://127.0.0.1:7401/", true),
            ("https://[::1]:7401/tavern", true),
            ("tavern.example.com", false),
            ("/tavern", false),
            ("ftp://tavern.example.com", false),
            ("https://", false),
            ("https://ada:secret@tavern.example.com", false),
            ("https://tavern.example.com?key=1", false),
            ("https://tavern.example.com/#a", false),
            ("https://tavern.example.com/a)b", false),
            ("https://tavern.example.com/a b", false),
        ] {
            assert_eq!(is_public_url(address), is_good, "{address}");
        }
        let long = format!("https://tavern.example.com/{}", "a".repeat(MOST_URL));
        assert!(!is_public_url(&long));
    }
}
