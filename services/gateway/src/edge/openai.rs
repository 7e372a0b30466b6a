//! The chat API of OpenAI: a model is an agent, whose tools really run.
//!
//! - `request`: a chat completion as a turn of an agent.
//! - `activity`: the events of a run, as text and thought.
//! - `pictures`: the pictures that calls showed, as links or names.
//! - `spoken`: the text of a stream over answers that are void.
//! - `unsupported`: parameters that are refused.
//! - `completion`: the answer, at once or in chunks.
//! - `error`: statuses as this API reports them.

mod activity;
mod completion;
pub(super) mod error;
pub(super) mod pictures;
mod request;
mod spoken;
mod unsupported;

use std::sync::Arc;

use axum::Extension;
use axum::Json;
use axum::extract::{Path, Request};
use axum::response::{IntoResponse, Response};
use contracts::tavern::agent::v1::profile_service_client::ProfileServiceClient;
use contracts::tavern::agent::v1::{GetProfileRequest, ListProfilesRequest};
use contracts::tavern::common::v1::ErrorReason;
use contracts::tavern::gateway::v1::gateway_service_client::GatewayServiceClient;
use grpc_kit::Calls;
use http::HeaderMap;
use serde_json::{Value, json};
use tonic::Status;

use self::completion::{Cancel, Run};
use self::pictures::{Pictures, PublicUrl};
use super::body;
use super::call::with_metadata;
use crate::door::ClientDoor;

/// The method that answers a chat completion.
const INVOKE: &str = "/tavern.gateway.v1.GatewayService/InvokeText";

/// The largest request: more than a turn takes, as clients send much that is ignored.
const MAX_REQUEST: usize = 4 << 20;

/// Pages of profiles that are listed as models.
const MAX_PAGES: usize = 20;

/// `POST /v1/chat/completions`
pub(super) async fn complete(
    Extension(calls): Extension<Calls>,
    Extension(door): Extension<Arc<ClientDoor>>,
    Extension(address): Extension<PublicUrl>,
    request: Request,
) -> Response {
    match begin(calls, (&door, address), request).await {
        Ok(response) => response,
        Err(status) => error::before_run(&status),
    }
}

async fn begin(
    calls: Calls,
    (door, address): (&ClientDoor, PublicUrl),
    request: Request,
) -> Result<Response, Status> {
    let (parts, body) = request.into_parts();
    let mut call = calls.enter(INVOKE, &parts.headers).await?;
    let read = async {
        let bytes = body::read(body, MAX_REQUEST).await?;
        request::read(&bytes, &parts.headers)
    };
    let asked = call.read(read).await?;
    let invoke = with_metadata(asked.invoke, &parts.headers);
    // A client with a key of its own can request the answer again.
    let comes_back = !invoke.get_ref().request_id.is_empty();
    let cancel = (!comes_back).then(|| Cancel::by(calls.clone(), &parts.headers));
    let records = GatewayServiceClient::new(call).invoke_text(invoke).await?;
    let run = Run {
        records: records.into_inner(),
        model: asked.model,
        cancel,
        pictures: Pictures::at(address.for_links(door, &parts.headers).await),
    };
    Ok(match asked.chunks {
        Some(chunks) => completion::in_chunks(run, chunks),
        None => completion::whole(run).await,
    })
}

/// `GET /v1/models`
pub(super) async fn models(Extension(calls): Extension<Calls>, headers: HeaderMap) -> Response {
    match list(calls, &headers).await {
        Ok(models) => Json(json!({"object": "list", "data": models})).into_response(),
        Err(status) => error::before_run(&status),
    }
}

/// `GET /v1/models/{id}`
pub(super) async fn model(
    Path(profile_id): Path<String>,
    Extension(calls): Extension<Calls>,
    headers: HeaderMap,
) -> Response {
    let request = with_metadata(
        GetProfileRequest {
            profile_id: profile_id.clone(),
            ..GetProfileRequest::default()
        },
        &headers,
    );
    match ProfileServiceClient::new(calls).get_profile(request).await {
        Ok(_) => Json(describe(&profile_id)).into_response(),
        Err(status) => error::before_run(&status),
    }
}

async fn list(calls: Calls, headers: &HeaderMap) -> Result<Vec<Value>, Status> {
    let mut client = ProfileServiceClient::new(calls);
    let (mut models, mut page_token) = (Vec::new(), String::new());
    for _ in 0..MAX_PAGES {
        let page = ListProfilesRequest {
            page_token,
            ..ListProfilesRequest::default()
        };
        let page = client.list_profiles(with_metadata(page, headers)).await?;
        let page = page.into_inner();
        models.extend(
            page.profiles
                .iter()
                .map(|profile| describe(&profile.profile_id)),
        );
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    Ok(models)
}

/// Describes an agent as a model. The time of its creation is unknown.
fn describe(profile_id: &str) -> Value {
    json!({"id": profile_id, "object": "model", "created": 0, "owned_by": "tavern"})
}

/// Whether a status means that the agent does not exist.
fn is_unknown_model(status: &Status) -> bool {
    grpc_kit::reason(status) == Some(ErrorReason::ProfileNotFound)
}
