//! Certificates of a server that change while it serves.
//!
//! Open connections continue with the certificate that they began with; each new one has the latest.

use std::time::Duration;

use crate::{
    Health, failure,
    tls::{files::Look, server::Acceptor},
};

/// The name for health checks of the certificates: it does not serve while files are refused, so that earlier ones are
/// in force.
const HEALTH: &str = "tls";

/// Renews the certificates of a server for ever.
pub(super) async fn watch(acceptor: Option<&Acceptor>, interval: Duration, health: &Health) {
    let Some(acceptor) = acceptor else {
        return std::future::pending().await;
    };
    health.set(HEALTH, true).await;
    loop {
        tokio::time::sleep(interval).await;
        match acceptor.look() {
            Look::Unchanged => continue,
            Look::Renewed => {
                telemetry::metrics::certificates_changed(true);
                tracing::info!("the certificates are renewed");
            }
            Look::Restored => tracing::info!("the certificates are again those in force"),
            Look::Refused(error) => {
                telemetry::metrics::certificates_changed(false);
                tracing::warn!(
                    error = failure::chain(&error),
                    "changed certificates are refused; earlier ones stay in force"
                );
            }
        }
        health.set(HEALTH, !acceptor.is_refused()).await;
    }
}
