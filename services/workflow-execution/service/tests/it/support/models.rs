//! A double of the model service: it answers each request with the text at the place that the number
//! of answers in the request names, so that a repeated request gets the same answer.

use std::sync::{Arc, Mutex};

use contracts::tavern::agent::v1::generate_response::Piece;
use contracts::tavern::agent::v1::model_service_server::ModelService;
use contracts::tavern::agent::v1::{
    GenerateEnd, GenerateRequest, GenerateResponse, ListModelsRequest, ListModelsResponse,
};
use contracts::tavern::common::v1::{ChatRole, ModelUsage};
use tokio::sync::watch;
use tonic::{Request, Response, Status};

/// The double. Clones are handles of the same.
#[derive(Clone)]
pub(crate) struct ModelDouble {
    inner: Arc<Inner>,
}

struct Inner {
    answers: Mutex<Vec<String>>,
    tool_calls: Mutex<String>,
    requests: Mutex<Vec<GenerateRequest>>,
    refusal: Mutex<Option<Status>>,
    /// Whether an answer continues after its first character.
    open: watch::Sender<bool>,
}

impl Default for ModelDouble {
    fn default() -> Self {
        Self {
            inner: Arc::new(Inner {
                answers: Mutex::default(),
                tool_calls: Mutex::default(),
                requests: Mutex::default(),
                refusal: Mutex::default(),
                open: watch::Sender::new(true),
            }),
        }
    }
}

impl ModelDouble {
    /// Sets the answers, in order.
    pub(crate) fn answer(&self, answers: &[&str]) {
        let answers = answers.iter().map(|answer| (*answer).to_owned()).collect();
        *self.inner.answers.lock().unwrap() = answers;
    }

    /// Refuses every request.
    pub(crate) fn refuse(&self, refusal: Status) {
        *self.inner.refusal.lock().unwrap() = Some(refusal);
    }

    /// Adds native calls to every answer.
    pub(crate) fn call(&self, tool_calls: &serde_json::Value) {
        *self.inner.tool_calls.lock().unwrap() = tool_calls.to_string();
    }

    /// Holds every answer after its first character, or lets it continue.
    pub(crate) fn hold(&self, held: bool) {
        self.inner.open.send_replace(!held);
    }

    /// The requests so far.
    pub(crate) fn requests(&self) -> Vec<GenerateRequest> {
        self.inner.requests.lock().unwrap().clone()
    }
}

#[tonic::async_trait]
impl ModelService for ModelDouble {
    type GenerateStream = tonic::codegen::BoxStream<GenerateResponse>;

    async fn list_models(
        &self,
        _: Request<ListModelsRequest>,
    ) -> Result<Response<ListModelsResponse>, Status> {
        Err(Status::unimplemented("nodes do not list models"))
    }

    async fn generate(
        &self,
        request: Request<GenerateRequest>,
    ) -> Result<Response<Self::GenerateStream>, Status> {
        let request = request.into_inner();
        let answered = |role| role == i32::from(ChatRole::Assistant);
        let place = request
            .messages
            .iter()
            .filter(|message| answered(message.role))
            .count();
        let model = request.model.clone();
        self.inner.requests.lock().unwrap().push(request);
        if let Some(refusal) = self.inner.refusal.lock().unwrap().clone() {
            return Err(refusal);
        }
        let text = self.inner.answers.lock().unwrap().get(place).cloned();
        let text =
            text.ok_or_else(|| Status::failed_precondition("the double has no more answers"))?;
        let tool_calls_json = self.inner.tool_calls.lock().unwrap().clone();
        let mut open = self.inner.open.subscribe();
        let pieces = async_stream::stream! {
            let piece = |piece| Ok(GenerateResponse { piece: Some(piece) });
            let first = text.chars().next().map_or(0, char::len_utf8);
            yield piece(Piece::Text(text[..first].to_owned()));
            let _ = open.wait_for(|open| *open).await;
            yield piece(Piece::Text(text[first..].to_owned()));
            yield piece(Piece::End(GenerateEnd {
                finish_reason: "stop".to_owned(),
                input_tokens: 7,
                output_tokens: 3,
                tool_calls_json,
                usage: Some(ModelUsage {
                    input_tokens: 7,
                    output_tokens: 3,
                    ..ModelUsage::default()
                }),
                model,
                ..GenerateEnd::default()
            }));
        };
        Ok(Response::new(Box::pin(pieces)))
    }
}
