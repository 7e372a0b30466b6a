//! A gRPC server with hooks, which answers as a test wants and remembers its questions.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use contracts::tavern::plugin::v1::{
    ApplyRequest, ApplyResponse,
    hook_service_server::{HookService, HookServiceServer},
};
use serde_json::Value;
use testkit::{Stack, serve_backend};
use tokio::sync::watch;
use tonic::{Request, Response, Status};

type Answer = dyn Fn(&str, &Value) -> Result<Value, Status> + Send + Sync;

/// The server.
#[derive(Clone)]
pub(super) struct Backend {
    answer: Arc<Mutex<Arc<Answer>>>,
    asked: Arc<Mutex<Vec<(String, Value)>>>,
    /// Whether answers are held back.
    held: watch::Sender<bool>,
}

impl Backend {
    /// Starts a server, and registers it under a name.
    pub(super) async fn start(
        stack: &Stack,
        name: &str,
        answer: impl Fn(&str, &Value) -> Result<Value, Status> + Send + Sync + 'static,
    ) -> anyhow::Result<Self> {
        let backend = Self {
            answer: Arc::new(Mutex::new(Arc::new(answer))),
            asked: Arc::default(),
            held: watch::Sender::new(false),
        };
        let endpoint = serve_backend(HookServiceServer::new(backend.clone())).await?;
        super::super::register(stack, name, endpoint).await?;
        Ok(backend)
    }

    /// Answers otherwise from now on.
    pub(super) fn answers(
        &self,
        answer: impl Fn(&str, &Value) -> Result<Value, Status> + Send + Sync + 'static,
    ) {
        *lock(&self.answer) = Arc::new(answer);
    }

    /// Holds answers back, or gives them again.
    pub(super) fn hold(&self, held: bool) {
        self.held.send_replace(held);
    }

    /// Returns the payloads of a point, in order.
    pub(super) fn asked(&self, point: &str) -> Vec<Value> {
        let asked = lock(&self.asked);
        let asked = asked.iter().filter(|(at, _)| at == point);
        asked.map(|(_, payload)| payload.clone()).collect()
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[tonic::async_trait]
impl HookService for Backend {
    async fn apply(
        &self,
        request: Request<ApplyRequest>,
    ) -> Result<Response<ApplyResponse>, Status> {
        let request = request.into_inner();
        let payload: Value = serde_json::from_str(&request.payload_json)
            .map_err(|error| Status::internal(error.to_string()))?;
        let answer = Arc::clone(&*lock(&self.answer));
        lock(&self.asked).push((request.point.clone(), payload.clone()));
        let mut held = self.held.subscribe();
        let free = held.wait_for(|held| !held).await;
        free.map_err(|_| Status::cancelled("the test is over"))?;
        let decision = answer(&request.hook_id, &payload)?;
        Ok(Response::new(ApplyResponse {
            decision_json: decision.to_string(),
        }))
    }
}
