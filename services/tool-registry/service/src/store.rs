//! What is in the database: tools and gRPC servers that the operator added, and approvals.

pub(crate) mod approvals;
pub(crate) mod old_approvals;
mod sqlite;

use async_trait::async_trait;

pub use sqlite::{MIGRATIONS, SqliteStore};

/// A tool that the operator added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolRow {
    /// Its id.
    pub tool_id: String,
    /// Its definition as it was given.
    pub definition_json: String,
}

/// A gRPC server that the operator added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendRow {
    /// The name by which tool definitions speak of it.
    pub name: String,
    /// Where it is.
    pub endpoint: String,
    /// A serialised `FileDescriptorSet` of everything it offers.
    pub descriptors: Vec<u8>,
}

/// A request that must not be used with another body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestRow {
    /// The method.
    pub method: &'static str,
    /// The request id.
    pub request_id: String,
    /// The digest of the body, in hexadecimal digits.
    pub body_hash: String,
}

/// Why the store failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The request id was used with another body.
    #[error("the request id was used before with another body")]
    RequestIdReused,
    /// The disk is full.
    #[error("the disk is full")]
    Full(#[source] sqlx::Error),
    /// Anything else.
    #[error("the database failed")]
    Failed(#[from] sqlx::Error),
}

/// Keeps what the operator added.
#[async_trait]
pub trait ToolStore: Send + Sync + std::fmt::Debug {
    /// Returns every tool by id.
    async fn tools(&self) -> Result<Vec<ToolRow>, StoreError>;
    /// Whether a request was carried out before with the same body.
    async fn is_repeated(&self, request: &RequestRow) -> Result<bool, StoreError>;
    /// Saves a tool in place of one of the same id, together with its request.
    async fn put_tool(
        &self,
        tool: &ToolRow,
        request: Option<&RequestRow>,
    ) -> Result<(), StoreError>;
    /// Deletes a tool, together with noting its request. Returns whether it was there.
    async fn delete_tool(
        &self,
        tool_id: &str,
        request: Option<&RequestRow>,
    ) -> Result<bool, StoreError>;
    /// Returns every gRPC server by name.
    async fn backends(&self) -> Result<Vec<BackendRow>, StoreError>;
    /// Saves a gRPC server in place of one of the same name, together with its request.
    async fn put_backend(
        &self,
        backend: &BackendRow,
        request: Option<&RequestRow>,
    ) -> Result<(), StoreError>;
    /// Deletes a gRPC server, together with noting its request. Returns whether it was there.
    async fn delete_backend(
        &self,
        name: &str,
        request: Option<&RequestRow>,
    ) -> Result<bool, StoreError>;
    /// Closes the database.
    async fn close(&self);
}
