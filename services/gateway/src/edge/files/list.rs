//! The files of a conversation, as JSON.

use axum::Extension;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query};
use axum::response::{IntoResponse, Response};
use contracts::tavern::registry::v1::workspace_service_client::WorkspaceServiceClient;
use contracts::tavern::registry::v1::{ListFilesRequest, ListFilesResponse};
use grpc_kit::{Calls, Failure};
use http::{HeaderMap, header};
use prost::Message;
use serde::Deserialize;
use tonic::Status;

use super::error;
use crate::edge::call::with_metadata;
use crate::edge::connect::Encoding;
use crate::edge::contract;

/// The method that lists files.
const LIST: &str = "/tavern.registry.v1.WorkspaceService/ListFiles";

/// The files of a page where the client asks for no number.
const PAGE: i32 = 500;

/// The pages that an answer has at the most, where the client asks for none.
const MAX_PAGES: usize = 4;

/// The query parameters.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListParameters {
    #[serde(default)]
    page_size: Option<i32>,
    #[serde(default)]
    page_token: Option<String>,
}

impl ListParameters {
    /// Returns the number of pages that an answer has at the most.
    fn pages(&self) -> usize {
        match self.page_size.is_some() || self.page_token.is_some() {
            true => 1,
            false => MAX_PAGES,
        }
    }
}

/// `GET /v1/conversations/{id}/files`: the files, or the page of them that the parameters name.
pub(super) async fn answer(
    conversation: Result<Path<String>, PathRejection>,
    parameters: Result<Query<ListParameters>, QueryRejection>,
    Extension(calls): Extension<Calls>,
    headers: HeaderMap,
) -> Response {
    let wrong = |what: &str| Status::from(Failure::invalid_fields().violation("", what));
    let asked = async {
        let Path(conversation_id) = conversation.map_err(|_| wrong("the address is not UTF-8"))?;
        let Query(parameters) = parameters
            .map_err(|_| wrong("the parameters of the address are page_size and page_token"))?;
        Ok((conversation_id, parameters))
    };
    let listed = async {
        let mut call = calls.enter(LIST, &headers).await?;
        let (conversation_id, parameters) = call.read(asked).await?;
        let mut first = Some(call);
        let mut pages = parameters.pages();
        let mut request = ListFilesRequest {
            conversation_id,
            page_size: parameters.page_size.unwrap_or(PAGE),
            page_token: parameters.page_token.unwrap_or_default(),
        };
        let mut listed = ListFilesResponse::default();
        while pages > 0 {
            let call = match first.take() {
                Some(call) => call,
                None => calls.enter(LIST, &headers).await?,
            };
            let asked = with_metadata(request.clone(), &headers);
            let page = WorkspaceServiceClient::new(call).list_files(asked).await?;
            let mut page = page.into_inner();
            listed.files.append(&mut page.files);
            listed = ListFilesResponse {
                files: listed.files,
                ..page
            };
            request.page_token.clone_from(&listed.next_page_token);
            pages = if request.page_token.is_empty() {
                0
            } else {
                pages - 1
            };
        }
        write(&listed)
    };
    match listed.await {
        Ok(json) => ([(header::CONTENT_TYPE, "application/json")], json).into_response(),
        Err(status) => error::at_door(&status),
    }
}

fn write(listed: &ListFilesResponse) -> Result<axum::body::Bytes, Status> {
    let descriptor = contract::message("tavern.registry.v1.ListFilesResponse");
    let descriptor = descriptor.ok_or_else(|| Status::internal("the contract has no list"))?;
    Encoding::Json.write(&descriptor, listed.encode_to_vec().into())
}
