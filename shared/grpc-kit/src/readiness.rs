//! The readiness of a server to do its work, which is more than its liveness.

use std::{collections::BTreeMap, fmt, future::Future, pin::Pin, sync::Arc, time::Duration};

use tonic::Code;
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

use crate::{Health, Transport, health::LIVENESS};

/// The time between two checks of the needs.
const INTERVAL: Duration = Duration::from_secs(5);

/// The time that a service may take to report that it lives.
const PATIENCE: Duration = Duration::from_secs(3);

type Checked = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// A condition without which a server cannot do its work.
#[derive(Clone)]
pub struct Need {
    name: &'static str,
    check: Arc<dyn Fn() -> Checked + Send + Sync>,
}

impl fmt::Debug for Need {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Need").field(&self.name).finish()
    }
}

impl Need {
    /// Needs another service to live. The readiness of that service is not checked: two services
    /// that need each other would wait for ever.
    pub fn service(name: &'static str, transport: Transport) -> Self {
        let client = HealthClient::new(transport.outermost());
        let check = move || {
            let mut client = client.clone();
            let request = HealthCheckRequest {
                service: LIVENESS.to_owned(),
            };
            let checked = async move {
                match tokio::time::timeout(PATIENCE, client.check(request)).await {
                    Ok(Ok(_)) => Ok(()),
                    // It answers, and knows no such name.
                    Ok(Err(status)) if status.code() == Code::NotFound => Ok(()),
                    Ok(Err(status)) => Err(status.message().to_owned()),
                    Err(_) => Err("does not answer".to_owned()),
                }
            };
            Box::pin(checked) as Checked
        };
        Self {
            name,
            check: Arc::new(check),
        }
    }

    /// Needs a condition of the process itself; the error names the missing part.
    pub fn condition(
        name: &'static str,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        let check = move || Box::pin(std::future::ready(check())) as Checked;
        Self {
            name,
            check: Arc::new(check),
        }
    }
}

/// Keeps the health of a server in line with its needs, for ever.
pub(crate) async fn watch(needs: &[Need], health: &Health) {
    let mut missing: BTreeMap<&str, String> = BTreeMap::new();
    if needs.is_empty() {
        return std::future::pending().await;
    }
    loop {
        for need in needs {
            match (need.check)().await {
                Ok(()) => {
                    if missing.remove(need.name).is_some() {
                        tracing::info!(need = need.name, "available again");
                    }
                }
                Err(reason) => {
                    if missing.insert(need.name, reason.clone()).is_none() {
                        tracing::warn!(need = need.name, reason, "not ready: a need is not met");
                    }
                }
            }
        }
        health.set_all(missing.is_empty()).await;
        tokio::time::sleep(INTERVAL).await;
    }
}
