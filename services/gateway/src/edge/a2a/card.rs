//! The cards of agents.

use std::time::Duration;

use axum::Extension;
use axum::response::{IntoResponse, Response};
use contracts::tavern::agent::v1::ListProfilesRequest;
use core_types::Tenant;
use grpc_kit::CallContext;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use serde_json::{Value, json};
use tonic::Status;

use super::{error, method};
use crate::Peers;
use crate::edge::json_call::JsonCall;
use crate::edge::public::PublicAddress;

const VERSION: HeaderName = HeaderName::from_static("a2a-version");

/// The longest time that reading a card takes.
const LONGEST: Duration = Duration::from_secs(10);

/// The cards of agents, which are public: a client reads one to learn that it needs a credential. So the
/// gateway itself calls the agents for them. Only those of the default tenant have public ones.
#[derive(Clone, Debug)]
pub(super) struct Cards {
    /// The agent whose card is served at the root; empty for the first agent by id.
    at_root: String,
    peers: Peers,
}

impl Cards {
    pub(super) fn new(at_root: &str, peers: &Peers) -> Self {
        Self {
            at_root: at_root.to_owned(),
            peers: peers.clone(),
        }
    }

    /// Answers with the card of an agent, to clients that do not know its version yet.
    pub(super) async fn of_agent(&self, agent: &str, address: &PublicAddress) -> Response {
        let headers = [
            (header::CONTENT_TYPE, "application/json"),
            (header::CACHE_CONTROL, "no-cache"),
        ];
        match self.read(agent, address).await {
            Ok(card) => (headers, card).into_response(),
            Err(status) => error::of_rest(&status),
        }
    }

    async fn read(&self, agent: &str, address: &PublicAddress) -> Result<String, Status> {
        let unknown = || Status::unimplemented("A2A has no such method");
        let method = method("GetExtendedAgentCard").ok_or_else(unknown)?;
        let version = (VERSION, HeaderValue::from_static("1.0"));
        let metadata = HeaderMap::from_iter([version]);
        let request = json!({"tenant": agent});
        let agents = self.peers.a2a(&Self::context());
        let card = JsonCall::start(agents, metadata, method, &request).await?;
        with_address(&card.only().await?, address)
    }

    async fn agent_at_root(&self) -> Result<String, Status> {
        if !self.at_root.is_empty() {
            return Ok(self.at_root.clone());
        }
        let request = ListProfilesRequest {
            page_size: 1,
            ..ListProfilesRequest::default()
        };
        let mut profiles = self.peers.profiles(&Self::context());
        let page = profiles.list_profiles(request).await?;
        let first = page.into_inner().profiles.into_iter().next();
        Ok(first.unwrap_or_default().profile_id)
    }

    fn context() -> CallContext {
        CallContext::of_tenant(Tenant::DEFAULT).with_timeout(LONGEST)
    }
}

/// `GET /.well-known/agent-card.json`
pub(super) async fn at_root(
    Extension(cards): Extension<Cards>,
    Extension(address): Extension<PublicAddress>,
) -> Response {
    match cards.agent_at_root().await {
        Ok(agent) => cards.of_agent(&agent, &address).await,
        Err(status) => error::of_rest(&status),
    }
}

/// Completes the addresses of a card that begin at this server with the address that the client reached.
///
/// # Errors
/// A card that is not JSON, which the service never returns.
pub(super) fn with_address(card: &str, address: &PublicAddress) -> Result<String, Status> {
    let mut card: Value = serde_json::from_str(card).map_err(|error| grpc_kit::internal(&error))?;
    let interfaces = card["supportedInterfaces"].as_array_mut();
    for interface in interfaces.into_iter().flatten() {
        let path = interface["url"].as_str().unwrap_or_default();
        if path.is_empty() || path.starts_with('/') {
            interface["url"] = format!("{address}{path}").into();
        }
    }
    Ok(card.to_string())
}
