//! The errors of starting the service.

/// The reason for which the service cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The data directory cannot be used.
    #[error("the data directory cannot be used")]
    DataDir(#[from] sql_store::DataDirError),
    /// A database file cannot be opened.
    #[error("a database file cannot be opened")]
    Open(#[from] sql_store::OpenError),
    /// The registered tools cannot be read.
    #[error("the registered tools cannot be read")]
    Store(#[from] crate::store::StoreError),
    /// The directory of workspaces cannot be used.
    #[error("the directory of workspaces cannot be used")]
    Workspaces(#[source] std::io::Error),
    /// The file with rules and approvers cannot be used.
    #[error(transparent)]
    Approvals(#[from] crate::approvals::PolicyError),
    /// The directory of plugins cannot be listed.
    #[error("the plugins directory {path} cannot be listed; make it or change 'plugins_dir'")]
    Plugins {
        /// The directory.
        path: String,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
}
