//! The binding of A2A to HTTP with JSON.

use axum::Extension;
use axum::extract::{Path, Query, Request};
use axum::response::{IntoResponse, Response};
use grpc_kit::{Calls, Failure};
use http::{Method, StatusCode, Uri, header};
use prost_reflect::{Kind, MethodDescriptor};
use serde_json::{Map, Value};
use tonic::Status;

use super::card::Cards;
use super::rules::{self, Found};
use super::stream::{self, Binding};
use super::{A2aCaller, CARD, error, is_json};
use crate::edge::connect::parse_json;
use crate::edge::public::PublicAddress;
use crate::edge::{body, contract};

/// Answers at an address below `/a2a/`.
pub(super) async fn answer(
    Path(path): Path<String>,
    Extension(calls): Extension<Calls>,
    Extension(address): Extension<PublicAddress>,
    Extension(cards): Extension<Cards>,
    request: Request,
) -> Response {
    if let Some(agent) = path.strip_suffix(CARD)
        && request.method() == Method::GET
    {
        return cards.of_agent(agent, &address).await;
    }
    let (method, values) = match rules::find(request.method(), &path) {
        Found::Method(method, values) => (method, values),
        Found::OtherVerbs => return error::other_verb(),
        Found::Nothing => return error::no_such_path(),
    };
    let answered = perform(calls, address, method, values, request).await;
    answered.unwrap_or_else(|status| error::of_rest(&status))
}

async fn perform(
    calls: Calls,
    address: PublicAddress,
    method: MethodDescriptor,
    values: Map<String, Value>,
    request: Request,
) -> Result<Response, Status> {
    let path = contract::path_of(&method);
    let mut call = calls.enter(&path, request.headers()).await?;
    let headers = request.headers().clone();
    let maximum = calls.max_request_message(&path);
    let asked = call.read(read(maximum, &method, values, request)).await?;
    let caller = A2aCaller::of(call, &headers, address);
    if method.is_server_streaming() {
        let call = caller.call(method, &asked).await?;
        return stream::answer(call, Binding::Rest).await;
    }
    let text = caller.ask(method, &asked).await?;
    let kind = [(header::CONTENT_TYPE, "application/a2a+json")];
    Ok((StatusCode::OK, kind, text).into_response())
}

/// Reads the request of a method from its body or its parameters; the address comes before both.
async fn read(
    maximum: usize,
    method: &MethodDescriptor,
    values: Map<String, Value>,
    request: Request,
) -> Result<Value, Status> {
    let (parts, body) = request.into_parts();
    let mut asked = match parts.method {
        Method::POST => {
            let bytes = body::read(body, maximum).await?;
            match bytes.is_empty() {
                true => Map::new(),
                false if !is_json(&parts.headers) => {
                    let what = "must be application/json or application/a2a+json";
                    let failure = Failure::invalid_fields();
                    return Err(failure.violation("metadata.content-type", what).into());
                }
                false => match parse_json(&bytes)? {
                    Value::Object(asked) => asked,
                    _ => {
                        let failure = Failure::invalid_fields();
                        return Err(failure.violation("", "is not an object").into());
                    }
                },
            }
        }
        _ => parameters(&parts.uri, method)?,
    };
    for (name, value) in values {
        if let Some(field) = method.input().get_field_by_json_name(&name) {
            asked.remove(field.name());
        }
        asked.insert(name, value);
    }
    Ok(Value::Object(asked))
}

/// Reads the query parameters, whose values are all text.
fn parameters(uri: &Uri, method: &MethodDescriptor) -> Result<Map<String, Value>, Status> {
    let pairs = Query::<Vec<(String, String)>>::try_from_uri(uri);
    let Query(pairs) = pairs.map_err(|_| {
        let failure = Failure::invalid_fields();
        Status::from(failure.violation("", "the parameters of the address cannot be read"))
    })?;
    let pairs = pairs.into_iter().map(|(name, text)| {
        let field = method.input().get_field_by_json_name(&name);
        let is_bool = field.is_some_and(|field| field.kind() == Kind::Bool);
        let value = match (is_bool, text.as_str()) {
            (true, "true") => Value::Bool(true),
            (true, "false") => Value::Bool(false),
            _ => Value::String(text),
        };
        (name, value)
    });
    Ok(pairs.collect())
}
