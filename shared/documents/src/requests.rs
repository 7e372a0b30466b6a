//! Request ids that were used, and the seam to the database that has them.

use async_trait::async_trait;
use core_types::Tenant;
use run_log::Hash;
use sql_store::StoreError;

/// A request that is carried out once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The method.
    pub method: &'static str,
    /// The resource within which the ids of the method are unique; may be empty.
    pub scope: &'a str,
    /// The caller's id for it.
    pub id: &'a str,
    /// The digest of the request.
    pub body: Hash,
}

/// The record of a request id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The id was not used.
    New,
    /// The id was used with this body; holds the noted answer.
    Same(String),
    /// The id was used with another body.
    OtherBody,
}

impl<'a> Request<'a> {
    /// Creates the request of a caller; `None` if its id is empty, as it is never repeated then.
    pub fn of(method: &'static str, id: &'a str, body: Hash) -> Option<Self> {
        let scope = "";
        (!id.is_empty()).then_some(Self {
            method,
            scope,
            id,
            body,
        })
    }
}

/// Knows the request ids that were used.
#[async_trait]
pub trait RequestStore: Send + Sync + std::fmt::Debug {
    /// Returns the record of a request id.
    ///
    /// # Errors
    /// A database that does not work.
    async fn seen(&self, tenant: Tenant, request: Request<'_>) -> Result<Seen, StoreError>;
}
