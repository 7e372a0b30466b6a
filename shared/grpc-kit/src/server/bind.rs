//! A listener, unless the address is exposed without authentication.

use std::{io, net::SocketAddr};

use tokio::net::TcpListener;

use crate::settings::ServerSettings;

/// An address beyond loopback was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is {address}, which others than this machine can reach, while no caller is authenticated")]
pub struct Exposed {
    /// The address.
    pub address: SocketAddr,
}

/// No listener could be made.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The address is exposed without authentication.
    #[error(
        "the address {} can be reached from beyond this machine while no caller is \
         authenticated; listen on a loopback address, or set \
         serve_without_authentication_beyond_loopback",
        .0.address
    )]
    Exposed(#[from] Exposed),
    /// The system refused.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
}

/// Binds the address of the settings.
///
/// # Errors
/// [`BindError`] when the address is exposed or taken.
pub async fn bind(settings: &ServerSettings) -> Result<TcpListener, BindError> {
    check_exposure(settings.listen, settings)?;
    TcpListener::bind(settings.listen)
        .await
        .map_err(|source| BindError::Listen {
            address: settings.listen,
            source,
        })
}

pub(crate) fn check_exposure(
    address: SocketAddr,
    settings: &ServerSettings,
) -> Result<(), Exposed> {
    let loopback = address.ip().to_canonical().is_loopback();
    if loopback || settings.serve_without_authentication_beyond_loopback {
        Ok(())
    } else {
        Err(Exposed { address })
    }
}
