//! The bounds of tenants.

use std::fmt;

use core_types::Tenant;

/// The bounds of tenants.
pub trait Bounds: fmt::Debug + Send + Sync {
    /// Returns the most bytes of blobs that a tenant may have; `None` for no bound. Each blob counts as whole blocks of
    /// 4 KiB.
    fn most(&self, tenant: Tenant) -> Option<u64>;
}

/// The bounds where no tenant has one.
#[derive(Debug)]
pub(crate) struct Unbounded;

impl Bounds for Unbounded {
    fn most(&self, _tenant: Tenant) -> Option<u64> {
        None
    }
}
