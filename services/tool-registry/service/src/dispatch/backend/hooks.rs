//! Hooks whose handler is a registered server.

use std::{sync::Arc, time::Duration};

use contracts::tavern::plugin::v1::{ApplyRequest, hook_service_client::HookServiceClient};
use core_types::Tenant;
use grpc_kit::CallContext;
use hook_chain::HookFailure;
use tonic::{Code, Status};

use super::{Backend, Backends, MAX_ANSWER_BYTES, timed};
use crate::store::StoreError;

/// The method that a server with hooks has.
pub const APPLY: &str = "tavern.plugin.v1.HookService/Apply";

impl Backends {
    /// Returns a server that the operator of the installation registered: of the default tenant, or a shared one. No
    /// server of another tenant stands in for it.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn of_installation(&self, name: &str) -> Result<Option<Arc<Backend>>, StoreError> {
        let found = self.get(Tenant::DEFAULT, name).await?;
        Ok(found.map(|found| found.backend))
    }

    /// Asks a server for the decision of a hook.
    ///
    /// # Errors
    /// The server is not registered, or has no answer.
    pub(crate) async fn apply_hook(
        &self,
        name: &str,
        request: ApplyRequest,
        context: &CallContext,
        limit: Duration,
    ) -> Result<String, HookFailure> {
        let found = self.of_installation(name).await.map_err(|error| {
            HookFailure::new("hook_unreachable", format!("cannot be looked up: {error}")).unasked()
        })?;
        let backend = found.ok_or_else(|| {
            let message =
                format!("has the backend '{name}', which is not registered; add it by PutBackend");
            HookFailure::new("hook_unreachable", message)
        })?;
        let mut client = HookServiceClient::new(backend.channel.clone())
            .max_decoding_message_size(MAX_ANSWER_BYTES);
        let request = timed(request, limit, context.tenant());
        let answer = client.apply(request).await;
        let answer = answer.map_err(|status| failure_of(name, &status))?;
        Ok(answer.into_inner().decision_json)
    }
}

fn failure_of(name: &str, status: &Status) -> HookFailure {
    let said = status.message();
    tracing::warn!(backend = name, code = ?status.code(), said, "the backend of a hook failed");
    match status.code() {
        Code::DeadlineExceeded => HookFailure::new("hook_timeout", "did not answer in time"),
        Code::Unavailable => HookFailure::new(
            "hook_unreachable",
            format!("has the backend '{name}', which cannot be reached"),
        ),
        code => HookFailure::new(
            "hook_failed",
            format!("has the backend '{name}', which failed with {code:?}"),
        ),
    }
}
