//! Hooks about acts of other services.

use std::sync::Arc;

use contracts::tavern::{
    common::v1::HookApplied,
    registry::v1::{ApplyHooksRequest, HookDenial, plugin_service_client::PluginServiceClient},
};
use grpc_kit::{CallContext, Failure, Patience, Transport};
use serde_json::Value;
use tokio::{sync::Semaphore, time::Instant};
use tonic::Code;

use crate::{OverrideClient, PATIENCE, Point, asked::Followed};

/// The most acts that are being shown to observers; later ones are passed over, which is logged.
const MAX_OBSERVED: usize = 128;

/// Asks the registry about acts. Clone, cheap.
#[derive(Clone, Debug)]
pub struct HookClient {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    followed: Arc<Followed>,
    observed: Arc<Semaphore>,
}

/// An act after its hooks.
#[derive(Clone, Debug, Default)]
pub struct Applied {
    /// The act as hooks changed it; none if none did.
    pub act: Option<Value>,
    /// The refusal of the act; none if it is carried out.
    pub denial: Option<HookDenial>,
    /// The applications, in order.
    pub applied: Vec<HookApplied>,
}

impl HookClient {
    /// Takes the registry behind a transport.
    pub fn new(registry: Transport) -> Self {
        Self {
            inner: Arc::new(Inner {
                followed: Arc::new(Followed::new(registry)),
                observed: Arc::new(Semaphore::new(MAX_OBSERVED)),
            }),
        }
    }

    /// Returns the client of overrides that follows the same registry.
    pub fn overrides(&self) -> OverrideClient {
        OverrideClient::new(Arc::clone(&self.inner.followed))
    }

    /// Whether a point may have hooks. The first question begins to follow the points.
    pub fn may_have(&self, point: Point) -> bool {
        self.inner.followed.may_have(point)
    }

    /// Passes an act, an object with the member that the point names, through the hooks of a point.
    ///
    /// # Errors
    /// The registry does not answer, or refuses the act.
    pub async fn pass(
        &self,
        context: &CallContext,
        point: Point,
        act: impl FnOnce() -> Value,
    ) -> Result<Applied, Failure> {
        match self.may_have(point) {
            true => self.ask(context, point, &act()).await,
            false => Ok(Applied::default()),
        }
    }

    /// Shows an act that has ended to the hooks that observe a point. Nothing waits for them.
    pub fn observe(&self, context: &CallContext, point: Point, act: impl FnOnce() -> Value) {
        if !self.may_have(point) {
            return;
        }
        let Ok(place) = Arc::clone(&self.inner.observed).try_acquire_owned() else {
            tracing::warn!(
                point = point.as_str(),
                "an act is not shown to hooks, as too many acts wait"
            );
            return;
        };
        let (this, context, act) = (self.clone(), context.clone().without_deadline(), act());
        tokio::spawn(async move {
            let _place = place;
            if let Err(failure) = this.ask(&context, point, &act).await {
                let status = failure.into_status();
                tracing::warn!(%status, point = point.as_str(), "an act is not shown to hooks");
            }
        });
    }

    async fn ask(
        &self,
        context: &CallContext,
        point: Point,
        act: &Value,
    ) -> Result<Applied, Failure> {
        let request = ApplyHooksRequest {
            point: point.as_str().to_owned(),
            payload_json: act.to_string(),
        };
        let mut patience = Patience::new(PATIENCE, Instant::now() + PATIENCE);
        loop {
            let mut plugins = PluginServiceClient::new(self.inner.followed.registry.with(context));
            match plugins.apply_hooks(request.clone()).await {
                Ok(answer) => {
                    let answer = answer.into_inner();
                    return Ok(Applied {
                        act: serde_json::from_str(&answer.payload_json).ok(),
                        denial: answer.denial,
                        applied: answer.applied,
                    });
                }
                // A registry of an earlier version has no hooks.
                Err(status) if status.code() == Code::Unimplemented => {
                    return Ok(Applied::default());
                }
                Err(status) if patience.wait_after(&status).await => {}
                Err(status) => {
                    tracing::warn!(%status, point = point.as_str(), "hooks cannot be asked");
                    return Err(Failure::dependency_unavailable("tool-registry"));
                }
            }
        }
    }
}
