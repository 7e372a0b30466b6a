//! The reasons why the gateway cannot start.

/// The reason why the gateway cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address of another service cannot be used.
    #[error("the address of {service} cannot be used")]
    Peer {
        /// The service.
        service: &'static str,
        /// The fault of the address.
        #[source]
        source: grpc_kit::TransportError,
    },
}
