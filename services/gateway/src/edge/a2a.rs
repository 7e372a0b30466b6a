//! A2A over plain HTTP: the cards of agents, JSON-RPC, and HTTP with JSON.
//!
//! Requests are answered by the methods of `lf.a2a.v1.A2AService`, which gRPC clients call.
//!
//! - `card`: the card of an agent, at its well-known addresses.
//! - `json_rpc`: `POST /a2a`; `envelope` writes the JSON-RPC object around an answer.
//! - `rest`: the addresses below `/a2a/`; `rules` finds their methods in the options of the proto file.
//! - `stream`: answers of several messages, as server-sent events.
//! - `error`: statuses in the words of each binding.

mod card;
mod envelope;
mod error;
mod json_rpc;
mod rest;
mod rules;
mod stream;

use axum::routing::{any, get, post};
use axum::{Extension, Router};
use http::{HeaderMap, Request, Response};
use prost_reflect::MethodDescriptor;
use serde_json::Value;
use tonic::Status;
use tonic::body::Body;
use tower::Service;

use super::json_call::JsonCall;
use super::method::content_type;
use super::public::PublicAddress;
use super::{call, contract};
use crate::Peers;
use card::Cards;

const SERVICE: &str = "lf.a2a.v1.A2AService";

/// The well-known path of a card: of the server, or of an agent below its address.
const CARD: &str = "/.well-known/agent-card.json";

/// Returns the routes; `agent` names the agent whose card is served at the root, and may be empty.
pub(super) fn routes(agent: &str, peers: &Peers) -> Router {
    let cards = Extension(Cards::new(agent, peers));
    Router::new()
        .route(CARD, get(card::at_root).layer(cards.clone()))
        .route("/a2a", post(json_rpc::answer))
        .route("/a2a/{*path}", any(rest::answer).layer(cards))
}

/// The caller of a request by HTTP: its access to the services, its headers and its address.
#[derive(Debug)]
struct A2aCaller<S> {
    calls: S,
    metadata: HeaderMap,
    /// The address that the caller reached.
    address: PublicAddress,
}

impl<S> A2aCaller<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Status>,
{
    fn of(calls: S, headers: &HeaderMap, address: PublicAddress) -> Self {
        let metadata = call::metadata(headers);
        Self {
            calls,
            metadata,
            address,
        }
    }

    /// Calls a method of A2A.
    async fn call(self, method: MethodDescriptor, request: &Value) -> Result<JsonCall, Status> {
        JsonCall::start(self.calls, self.metadata, method, request).await
    }

    /// Calls a method with one answer.
    async fn ask(self, method: MethodDescriptor, request: &Value) -> Result<String, Status> {
        let address = self.address.clone();
        let is_card = method.output().full_name() == "lf.a2a.v1.AgentCard";
        let text = self.call(method, request).await?.only().await?;
        match is_card {
            true => card::with_address(&text, &address),
            false => Ok(text),
        }
    }
}

/// Returns a method of A2A by its name.
fn method(name: &str) -> Option<MethodDescriptor> {
    contract::method(SERVICE, name)
}

/// Whether a body is JSON by its content type; a form may come from any web page.
fn is_json(headers: &HeaderMap) -> bool {
    let kind = content_type(headers);
    matches!(kind, "application/json" | "application/a2a+json")
}
