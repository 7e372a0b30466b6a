//! A file that is put or deleted.

use axum::Extension;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use contracts::tavern::registry::v1::workspace_service_client::WorkspaceServiceClient;
use contracts::tavern::registry::v1::{
    DeleteFileRequest, File, WriteFileHeader, WriteFileResponse,
};
use grpc_kit::{Calls, EnteredCall, Failure};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use prost::Message;
use tonic::Status;

use super::conditions::Replaced;
use super::upload::Upload;
use super::{Address, error, place, served};
use crate::edge::call::{self, Answer, with_metadata};
use crate::edge::connect::{Encoding, without_message};
use crate::edge::contract;

/// The method that writes a file.
const WRITE: &str = "/tavern.registry.v1.WorkspaceService/WriteFile";

/// The method that deletes a file.
const DELETE: &str = "/tavern.registry.v1.WorkspaceService/DeleteFile";

/// `PUT /v1/conversations/{id}/files/{path}`: the body becomes the content of the file.
pub(super) async fn put(
    address: Address,
    Extension(calls): Extension<Calls>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let call = match calls.enter(WRITE, &parts.headers).await {
        Ok(call) => call,
        Err(status) => return error::at_door(&status),
    };
    let upload = Upload::of(body);
    match write(call, address, &parts.headers, &upload).await {
        Ok(written) => written,
        Err(status) => {
            upload.discard(&parts.headers).await;
            error::of_file(&status)
        }
    }
}

/// `DELETE /v1/conversations/{id}/files/{path}`
pub(super) async fn delete(
    address: Address,
    Extension(calls): Extension<Calls>,
    headers: HeaderMap,
) -> Response {
    let deleted = async {
        let mut call = calls.enter(DELETE, &headers).await?;
        let read = async {
            let (conversation_id, path) = place(address)?;
            let Replaced { etag, must_be_new } = Replaced::of(&headers)?;
            if must_be_new {
                return Err(Failure::etag_mismatch("").into());
            }
            Ok(DeleteFileRequest {
                conversation_id,
                path,
                etag: if etag == "*" { String::new() } else { etag },
            })
        };
        let request = with_metadata(call.read(read).await?, &headers);
        WorkspaceServiceClient::new(call).delete_file(request).await
    };
    match deleted.await {
        Ok(_) => StatusCode::NO_CONTENT.into_response(),
        Err(status) => error::of_file(&status),
    }
}

async fn write(
    mut call: EnteredCall,
    address: Address,
    headers: &HeaderMap,
    upload: &Upload,
) -> Result<Response, Status> {
    let read = async {
        refuse_parts(headers)?;
        let (conversation_id, path) = place(address)?;
        let Replaced { etag, must_be_new } = Replaced::of(headers)?;
        Ok(WriteFileHeader {
            conversation_id,
            path,
            size_bytes: upload.size(),
            sha256: String::new(),
            etag,
            must_be_new,
        })
    };
    let header = call.read(read).await?;
    let messages = upload.messages(header);
    let mut answer = Answer::of(call, WRITE, call::metadata(headers), messages).await;
    let message = answer.next().await?.ok_or_else(without_message)?;
    // The status comes after the message.
    while answer.next().await?.is_some() {}
    let written = WriteFileResponse::decode(message);
    let written = written.map_err(|error| grpc_kit::internal(&error))?;
    respond(&written)
}

/// Refuses a body that is not the content of a whole file.
fn refuse_parts(headers: &HeaderMap) -> Result<(), Status> {
    let mut failure = Failure::invalid_fields();
    let mut refuse = |name: HeaderName, what: &str| {
        if headers.contains_key(&name) {
            failure.add_violation(format!("metadata.{name}"), what);
        }
    };
    refuse(header::CONTENT_RANGE, "a file is put as a whole");
    refuse(
        header::CONTENT_ENCODING,
        "the content is stored as it is sent: send it without an encoding",
    );
    failure.refuse_if_any()
}

fn respond(written: &WriteFileResponse) -> Result<Response, Status> {
    let status = match written.created {
        true => StatusCode::CREATED,
        false => StatusCode::OK,
    };
    let file = written.file.as_ref().ok_or_else(without_message)?;
    let kind = [(header::CONTENT_TYPE, "application/json")];
    let mut response = (status, kind, json(file)?).into_response();
    if let Ok(etag) = HeaderValue::try_from(served::etag(file)) {
        response.headers_mut().insert(header::ETAG, etag);
    }
    Ok(response)
}

fn json(file: &File) -> Result<axum::body::Bytes, Status> {
    let descriptor = contract::message("tavern.registry.v1.File");
    let descriptor = descriptor.ok_or_else(without_message)?;
    Encoding::Json.write(&descriptor, file.encode_to_vec().into())
}
