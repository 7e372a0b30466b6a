//! ModelService: the models by themselves.

use std::time::{Duration, Instant};

use agent_domain::{
    budgets::{self, Budgets, Used},
    usage,
};
use contracts::tavern::{
    agent::v1::{
        self as proto, GenerateRequest, GenerateResponse, ListModelsRequest, ListModelsResponse,
        generate_response::Piece as WirePiece, model_service_server::ModelService,
    },
    common::v1::{self as common, ErrorReason},
};
use futures::{StreamExt, stream::BoxStream};
use grpc_kit::{CallContext, Failure};
use model_client::{Model, ModelError, ModelRequest, Models, Piece, Refusal};
use plugin_client::HookClient;
use tonic::{Code, Request, Response, Status};
use tracing::Instrument;

use crate::{
    error::no_such_model,
    runner::{
        describe, describe_model,
        hooked::{before_request, denied},
    },
    wire,
};

/// The most text of a request, in bytes.
const MAX_REQUEST_BYTES: usize = 4 << 20;
/// The longest time of an answer.
const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);

/// The server side of ModelService.
#[derive(Clone, Debug)]
pub struct ModelRpc {
    models: Models,
    hooks: HookClient,
}

impl ModelRpc {
    /// Serves these models; hooks see each request.
    pub fn new(models: Models, hooks: HookClient) -> Self {
        Self { models, hooks }
    }
}

#[tonic::async_trait]
impl ModelService for ModelRpc {
    type GenerateStream = BoxStream<'static, Result<GenerateResponse, Status>>;

    async fn list_models(
        &self,
        request: Request<ListModelsRequest>,
    ) -> Result<Response<ListModelsResponse>, Status> {
        const LIST: &str = "models";
        let request = request.into_inner();
        let after = super::page_after(LIST, &request.page_token)?;
        let size = core_types::page::page_size(request.page_size);
        let models = self
            .models
            .iter()
            .filter(|(name, _)| after.as_deref().is_none_or(|after| *name > after));
        let models = models
            .take(size + 1)
            .map(|(name, model)| proto::Model {
                name: name.to_owned(),
                provider: model.provider().kind().to_owned(),
                endpoint_model: model.provider().endpoint_model().to_owned(),
            })
            .collect();
        let (models, next_page_token) = super::page(LIST, models, size, |model| model.name.clone());
        Ok(Response::new(ListModelsResponse {
            models,
            next_page_token,
        }))
    }

    async fn generate(
        &self,
        request: Request<GenerateRequest>,
    ) -> Result<Response<Self::GenerateStream>, Status> {
        let context = CallContext::of(&request);
        let request = request.into_inner();
        let name = request.model.clone();
        let grant = request.grant.clone();
        let mut asked = checked(&context, request)?;
        let model = self
            .models
            .get(&name)
            .ok_or_else(|| no_such_model(Some(&name)))?;
        let place = (&*name, "");
        let hooked = before_request(&self.hooks, &context, place, &asked.messages).await?;
        if let Some(denial) = hooked.denial {
            return Err(denied("the model was not asked", &denial).into_status());
        }
        asked.messages.extend(hooked.messages);
        if let Some(grant) = grant {
            keep_within(&mut asked, &model, &grant)?;
        }
        let span = telemetry::spans::chat(&name);
        describe_model(&span, &model);
        let mut pieces = model.generate(asked);
        let in_span = span.clone();
        let answers = async_stream::stream! {
            loop {
                let piece = pieces.next().instrument(in_span.clone()).await;
                let ended = !matches!(piece, Some(Ok(Piece::Text(_) | Piece::Thinking(_))));
                match piece {
                    Some(Ok(piece)) => {
                        if let Piece::End(end) = &piece {
                            describe(&in_span, end);
                        }
                        yield Ok(GenerateResponse { piece: Some(to_wire(piece)) });
                    }
                    Some(Err(error)) => {
                        telemetry::spans::fail(&in_span, error.code(), &error.to_string());
                        yield Err(model_failed(&name, &error));
                    }
                    None => {}
                }
                if ended {
                    break;
                }
            }
        };
        Ok(Response::new(Box::pin(answers)))
    }
}

fn checked(context: &CallContext, request: GenerateRequest) -> Result<ModelRequest, Status> {
    let mut failure = Failure::invalid_fields();
    let mut messages = Vec::new();
    let mut bytes = 0;
    for (index, message) in request.messages.into_iter().enumerate() {
        match turn_log::wire::message_from_proto(message) {
            Ok(message) => {
                bytes += message.bytes();
                messages.push(message);
            }
            Err(error) => {
                let place = format!("messages[{index}].{}", error.field);
                failure.add_violation(place, error.to_string());
            }
        }
    }
    if bytes > MAX_REQUEST_BYTES {
        failure.add_violation(
            "messages",
            format!("have {bytes} bytes, but at most {MAX_REQUEST_BYTES} are allowed"),
        );
    }
    let tools = match request.tools_json.as_str() {
        "" => Vec::new(),
        text => serde_json::from_str::<Vec<serde_json::Value>>(text).unwrap_or_else(|_| {
            failure.add_violation("tools_json", "is not a JSON array");
            Vec::new()
        }),
    };
    for (index, tool) in tools.iter().enumerate() {
        if !tool.get("name").is_some_and(serde_json::Value::is_string) {
            failure.add_violation("tools_json", format!("has no name at place {index}"));
        }
    }
    let timeout = match request.timeout.map(Duration::try_from) {
        Some(Ok(timeout)) if !timeout.is_zero() => timeout,
        _ => MAX_TIMEOUT,
    };
    failure.refuse_if_any()?;
    let timeout = context
        .remaining()
        .map_or(timeout, |remaining| remaining.min(timeout));
    Ok(ModelRequest {
        max_output_tokens: (request.max_output_tokens > 0).then_some(request.max_output_tokens),
        temperature: request.temperature,
        top_p: request.top_p,
        seed: request.seed,
        tools,
        ..ModelRequest::new(context.tenant(), messages, Instant::now() + timeout)
    })
}

/// Lowers the limits of the answer to the grant of a request (rule G702).
fn keep_within(
    asked: &mut ModelRequest,
    model: &Model,
    grant: &common::CallGrant,
) -> Result<(), Failure> {
    let granted = super::start::granted(grant);
    if granted.money_micros.is_some() && !model.is_priced() {
        let problem = "cannot be kept, as the model or one of its fallbacks has no prices; state them in its \
                       settings";
        return Err(Failure::invalid_fields().violation("grant.money_micros", problem));
    }
    let budgets = Budgets {
        tokens: granted.tokens,
        money_micros: granted.money_micros,
        ..Budgets::default()
    };
    let request = u64::from(usage::estimate(asked.bytes()));
    let affordable = |micros| model.affordable(micros, request);
    match budgets.reserve(&Used::default(), request, true, affordable) {
        Ok(reserved) => {
            asked.max_output_tokens = budgets::within(asked.max_output_tokens, reserved);
            Ok(())
        }
        Err(budget) => {
            let message = format!(
                "the request and an answer need more than the {} that are left for them",
                budget.words()
            );
            let reason = ErrorReason::BudgetExhausted;
            let failure = Failure::new(Code::ResourceExhausted, reason, message);
            Err(failure.metadata("unit", budget.name()))
        }
    }
}

fn to_wire(piece: Piece) -> WirePiece {
    match piece {
        Piece::Text(text) => WirePiece::Text(text),
        Piece::Thinking(text) => WirePiece::Thinking(text),
        Piece::End(end) => WirePiece::End(proto::GenerateEnd {
            usage: Some(wire::usage_to_proto(&end.booking)),
            failed_attempts: end
                .failed_attempts
                .iter()
                .map(wire::attempt_to_proto)
                .collect(),
            reasoning_json: end.reasoning_json(),
            model: end.model,
            finish_reason: end.finish_reason,
            input_tokens: end.usage.input_tokens,
            output_tokens: end.usage.output_tokens,
            tool_calls_json: end
                .tool_calls
                .map(|calls| calls.to_string())
                .unwrap_or_default(),
        }),
    }
}

fn model_failed(name: &str, error: &ModelError) -> Status {
    if let ModelError::TenantLimit(reached) = error {
        return Failure::from(*reached).into_status();
    }
    let code = match error {
        ModelError::TimedOut { .. } => Code::DeadlineExceeded,
        ModelError::Refused(Refusal { status: 429, .. })
        | ModelError::TooLarge { .. }
        | ModelError::Busy { .. } => Code::ResourceExhausted,
        ModelError::Script(_)
        | ModelError::NotAnApi
        | ModelError::Key(_)
        | ModelError::Refused(Refusal {
            status: 400..=499, ..
        }) => Code::FailedPrecondition,
        _ => Code::Unavailable,
    };
    let message = format!("the model `{name}` gave no answer: {error}");
    let mut failure = Failure::new(code, ErrorReason::ModelFailed, message)
        .metadata("model", name)
        .metadata("code", error.code());
    if let Some(status) = error.status() {
        failure = failure.metadata("status", status.to_string());
    }
    if error.is_retryable() {
        failure = failure.retry_after(error.retry_after().unwrap_or(Duration::from_secs(1)));
    }
    failure.into_status()
}
