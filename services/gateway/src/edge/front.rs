//! The page for people who open the address.

use axum::Extension;
use axum::response::{IntoResponse, Response};
use http::{StatusCode, Uri};

use super::openai;
use super::public::PublicAddress;

/// Describes the server and lists its endpoints.
pub(super) async fn page(Extension(address): Extension<PublicAddress>) -> impl IntoResponse {
    format!(
        "Tavern {version} turns what language models write into work that really happens.\n\
         \n\
         {address}/console is a page to send messages and follow runs with.\n\
         \n\
         Every method of every service is at its gRPC path, for gRPC, Connect and gRPC-Web:\n\
         \n\
         \x20 curl --json '{{\"text\": \"Hello.\"}}' \\\n\
         \x20   {address}/tavern.gateway.v1.GatewayService/ParseText\n\
         \n\
         Beside them: /v1/runs/{{id}}/events (server-sent events, WebSocket), /v1/session\n\
         (WebSocket), /v1/conversations/{{id}}/files (GET, PUT, DELETE), /v1/chat/completions and\n\
         /v1/models (the chat API of OpenAI), and /a2a with /.well-known/agent-card.json (A2A).\n\
         \n\
         Once the server has a key, each request needs one: `authorization: Bearer KEY`. A page\n\
         exchanges it for a cookie by POST /v1/login, and for a ticket by POST /v1/ticket.\n\
         \n\
         The methods are described in proto/ of the repository, and by gRPC reflection where the\n\
         server allows it. The README of the repository has a tour.\n",
        version = env!("CARGO_PKG_VERSION"),
    )
}

/// Answers a path that does not exist.
pub(super) async fn not_found(uri: Uri) -> Response {
    // The client chooses the length of the path.
    let path: String = uri.path().chars().take(200).collect();
    let line = format!("{path} does not exist; GET / lists the endpoints");
    refuse(&uri, StatusCode::NOT_FOUND, line)
}

/// Answers a verb that a path does not accept; the `allow` header names the accepted ones.
pub(super) async fn method_not_allowed(uri: Uri) -> Response {
    let line = "this path takes another verb; the header `allow` names it";
    refuse(&uri, StatusCode::METHOD_NOT_ALLOWED, line.to_owned())
}

/// Refuses a request in plain text, or below their base URL as clients of OpenAI's API expect it.
fn refuse(uri: &Uri, status: StatusCode, line: String) -> Response {
    match uri.path().starts_with("/v1/") {
        true => openai::error::of_path(status, &line),
        false => (status, format!("{line}\n")).into_response(),
    }
}
