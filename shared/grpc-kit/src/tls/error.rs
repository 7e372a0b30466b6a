//! Certificates and keys that cannot be used.

use std::{io, path::PathBuf};

/// Certificates and keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("the file {} cannot be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A file has no certificate, or no private key.
    #[error("the file {} has no {wanted} in PEM", path.display())]
    Lacks {
        /// The file.
        path: PathBuf,
        /// The missing part.
        wanted: &'static str,
    },
    /// A certificate, a key, or both together are refused.
    #[error("the file {} is refused", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: rustls::Error,
    },
    /// The certificate of a service names another one, or none.
    #[error("the certificate in {} names {named}, not {expected}", path.display())]
    OtherService {
        /// The file.
        path: PathBuf,
        /// The service that it should name.
        expected: String,
        /// The service that it names.
        named: String,
    },
    /// The machine has no CAs.
    #[error("this machine has no CAs")]
    NoRoots,
    /// The name to expect is none.
    #[error("`{name}` is neither the name of a host nor the URI of a service")]
    Name {
        /// The name.
        name: String,
    },
    /// The certificates of CAs are refused as a set.
    #[error("the CAs are refused")]
    Verifier(#[source] rustls::client::VerifierBuilderError),
    /// The settings are refused together.
    #[error("TLS is refused")]
    Config(#[source] rustls::Error),
}

impl TlsError {
    /// Returns the way out, for people.
    pub(super) const fn remedy(&self) -> &'static str {
        match self {
            Self::Read { .. } => "name a file that the process may read",
            Self::Lacks { .. } | Self::Refused { .. } => {
                "make the files by `tavern certs`, or name those of your CA"
            }
            Self::OtherService { .. } => {
                "name the files that `tavern certs issue` has made for this service; its domain is server.tls.domain"
            }
            Self::NoRoots => "install the CAs of the system, or name a file with CAs",
            Self::Name { .. } => "give a name such as tavern.example.com",
            Self::Verifier(_) | Self::Config(_) => "name files with certificates of X.509",
        }
    }
}
