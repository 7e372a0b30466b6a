//! A listener, unless the address is exposed without TLS.

use std::{io, net::SocketAddr};

use tokio::net::TcpListener;

use crate::settings::{Callers, Exposed, ServerSettings};

/// No listener could be made.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The address is exposed without TLS.
    #[error("the address {0}; {remedy}", remedy = .0.remedy())]
    Exposed(Exposed),
    /// The system refused.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
}

/// Binds the address of the settings.
///
/// # Errors
/// [`BindError`] when the address is exposed or taken.
pub async fn bind(settings: &ServerSettings) -> Result<TcpListener, BindError> {
    let checked = settings.check_exposure(settings.listen, Callers::Clients);
    checked.map_err(BindError::Exposed)?;
    TcpListener::bind(settings.listen)
        .await
        .map_err(|source| BindError::Listen {
            address: settings.listen,
            source,
        })
}
