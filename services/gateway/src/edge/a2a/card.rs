//! The cards of agents.

use axum::Extension;
use axum::response::{IntoResponse, Response};
use contracts::tavern::agent::v1::ListProfilesRequest;
use contracts::tavern::agent::v1::profile_service_client::ProfileServiceClient;
use grpc_kit::Calls;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use serde_json::{Value, json};
use tonic::Status;

use super::{A2aCaller, error, method};
use crate::edge::public::PublicAddress;

const VERSION: HeaderName = HeaderName::from_static("a2a-version");

/// The agent whose card is served at the root; empty for the first agent by id.
#[derive(Clone, Debug)]
pub(super) struct CardAtRoot(String);

impl CardAtRoot {
    pub(super) fn of(agent: &str) -> Self {
        Self(agent.to_owned())
    }

    async fn agent(self, calls: Calls) -> Result<String, Status> {
        if !self.0.is_empty() {
            return Ok(self.0);
        }
        let request = ListProfilesRequest {
            page_size: 1,
            ..ListProfilesRequest::default()
        };
        let mut profiles = ProfileServiceClient::new(calls);
        let page = profiles.list_profiles(request).await?;
        let first = page.into_inner().profiles.into_iter().next();
        Ok(first.unwrap_or_default().profile_id)
    }
}

/// `GET /.well-known/agent-card.json`
pub(super) async fn at_root(
    Extension(root): Extension<CardAtRoot>,
    Extension(calls): Extension<Calls>,
    Extension(address): Extension<PublicAddress>,
    headers: HeaderMap,
) -> Response {
    let caller = A2aCaller::of(calls.clone(), &headers, address);
    match root.agent(calls).await {
        Ok(agent) => of_agent(caller, &agent).await,
        Err(status) => error::of_rest(&status),
    }
}

/// Answers with the card of an agent, to clients that do not know its version yet.
pub(super) async fn of_agent(mut caller: A2aCaller, agent: &str) -> Response {
    let Some(method) = method("GetExtendedAgentCard") else {
        return error::no_such_path();
    };
    let spoken = HeaderValue::from_static("1.0");
    caller.metadata.insert(VERSION, spoken);
    let headers = [
        (header::CONTENT_TYPE, "application/json"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    match caller.ask(method, &json!({"tenant": agent})).await {
        Ok(card) => (headers, card).into_response(),
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
