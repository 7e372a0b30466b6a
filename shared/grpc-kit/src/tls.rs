//! TLS of servers and clients, with certificates that are read again when their files change.
//!
//! - [`settings`]: the settings of both sides; `check`: whether their files can be used.
//! - `error`: certificates and keys that cannot be used.
//! - `pem`: certificates and keys in files.
//! - `files`: a value that is made again when its files change.
//! - `server`, `client`: the two sides of a connection.
//! - `leaf`: the certificate of a service itself.
//! - `failures`: the log of handshakes that fail, and of services that are refused.
//! - `peer`: the service that a certificate proves.
//! - `proxies`: proxies in front of a server, and the clients that they state.
//! - `stream`: a connection with TLS or without.

mod check;
pub(crate) mod client;
mod error;
pub(crate) mod failures;
pub(crate) mod files;
pub(crate) mod leaf;
mod peer;
mod pem;
pub mod proxies;
pub(crate) mod server;
pub mod settings;
pub(crate) mod stream;

use std::sync::{Arc, LazyLock};

use rustls::crypto::CryptoProvider;

pub use client::Connector;
pub use error::TlsError;
pub use failures::refused_certificate;
pub use leaf::CA_KEYS;
pub(crate) use peer::PeerProof;
pub use proxies::Proxies;
pub use settings::{ClientTls, ServerTls};

/// The one provider of cryptography. It is named at each use, so that no program has to install it first.
static PROVIDER: LazyLock<Arc<CryptoProvider>> =
    LazyLock::new(|| Arc::new(rustls::crypto::ring::default_provider()));

fn provider() -> Arc<CryptoProvider> {
    Arc::clone(&PROVIDER)
}
