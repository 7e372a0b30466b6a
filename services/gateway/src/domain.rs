//! What the gateway decides without asking another service.

pub(crate) mod scope;
