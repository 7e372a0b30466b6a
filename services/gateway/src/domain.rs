//! What the gateway decides without asking anybody.

pub(crate) mod policy;
pub(crate) mod request;
pub(crate) mod scope;
