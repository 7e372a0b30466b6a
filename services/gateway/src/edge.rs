//! The edges: every way into the gateway apart from gRPC, on the same port.
//!
//! An edge translates a request to gRPC, calls the same services as gRPC callers do, and translates
//! the answer back. It makes no decisions.
//!
//! - `guard`: the hosts and origins that may call; runs before everything else.
//! - `credential`: the credential of a request, also of a browser's; `login` makes it.
//! - `public`: the address that a client reached, behind a proxy too.
//! - `front`: the page for a person who opens the address.
//! - `method`: the methods of the services, each at its gRPC path.
//! - `connect`, `grpc_web`: the protocols that a method speaks.
//! - `events`: the records of a run, by `sse` or `websocket`; `watch` reads them.
//! - `session`: everything that a chat page needs, over one WebSocket.
//! - `files`: the files of conversations, by their paths.
//! - `openai`: the chat API of OpenAI.
//! - `a2a`: agents for clients of A2A.
//! - `console`: the page for people, which uses the edges above.
//! - `body`, `call`, `json_call`, `frames`, `contract`: requests to the services, and their answers.

mod a2a;
mod body;
mod call;
mod connect;
mod console;
mod contract;
mod credential;
mod events;
mod files;
mod frames;
mod front;
mod grpc_web;
mod guard;
mod json_call;
mod login;
mod method;
mod openai;
mod public;
mod session;
mod sse;
mod watch;
mod websocket;

use std::sync::Arc;

use axum::{
    Extension, Router, middleware,
    routing::{get, post},
};

use crate::Peers;
use crate::door::ClientDoor;
use crate::settings::HttpSettings;
use guard::Guard;
use openai::pictures::PublicUrl;

/// Returns the router for requests other than gRPC, for a server with `services`, given by their
/// full names.
pub(crate) fn router(
    settings: &HttpSettings,
    services: &[&str],
    door: &Arc<ClientDoor>,
    peers: &Peers,
) -> Router {
    let guard = Arc::new(Guard::new(settings));
    method::routes(services)
        .route("/", get(front::page))
        .route("/console", get(console::page))
        .route("/console/", get(console::moved))
        .route("/console/console.js", get(console::script))
        .route("/console/console.css", get(console::style))
        .route("/console/frame.css", get(console::frame_style))
        .route("/console/icon.svg", get(console::icon))
        .route("/v1/runs/{id}/events", get(events::answer))
        .route("/v1/session", get(session::answer))
        .route("/v1/login", post(login::login))
        .route("/v1/logout", post(login::logout))
        .route("/v1/ticket", post(login::ticket))
        .route("/v1/chat/completions", post(openai::complete))
        .route("/v1/models", get(openai::models))
        .route("/v1/models/{id}", get(openai::model))
        .merge(files::routes())
        .merge(a2a::routes(&settings.a2a_agent, peers))
        .fallback(front::not_found)
        .method_not_allowed_fallback(front::method_not_allowed)
        .layer(Extension(Arc::clone(door)))
        .layer(Extension(PublicUrl::new(&settings.public_url)))
        .layer(middleware::from_fn(credential::take))
        .layer(middleware::from_fn_with_state(guard, guard::admit))
}
