//! The errors of starting the service.

/// The reason for which the service cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The data directory or the database cannot be used.
    #[error(transparent)]
    Home(#[from] data_home::HomeError),
    /// The registered tools cannot be read.
    #[error("the registered tools cannot be read")]
    Store(#[from] crate::store::StoreError),
    /// Principals and keys cannot be read.
    #[error("the principals and their keys cannot be read")]
    Identities(#[source] crate::store::StoreError),
    /// Keys or issuers exist, and the services that call do not prove themselves.
    #[error(
        "{path} has keys, or the settings have issuers, and the services that call this one do not prove themselves: set \
         server.tls.cert, key and peer_ca to files of `tavern certs` at each service, or start `tavern serve` with it"
    )]
    KeysNeedProof {
        /// The data directory or the database.
        path: String,
    },
    /// The key of the audit cannot be used.
    #[error("the key of the audit cannot be read or made")]
    AuditKey(#[from] crate::audit::AuditKeyError),
    /// The audit cannot be read.
    #[error("the audit cannot be read")]
    Audit(#[source] crate::audit::failure::AuditFailure),
    /// The directory of workspaces cannot be used.
    #[error("the directory of workspaces cannot be used")]
    Workspaces(#[source] std::io::Error),
    /// The file with rules and approvers cannot be used.
    #[error(transparent)]
    Approvals(#[from] crate::approvals::PolicyError),
    /// The plugins cannot be loaded, mostly because their directory cannot be listed.
    #[error(
        "the plugins of {path} cannot be loaded; if it is no directory, make it or change 'plugins_dir'"
    )]
    Plugins {
        /// The directory.
        path: String,
        /// The reason.
        #[source]
        source: crate::plugins::ScanError,
    },
}
