//! The decisions that the gateway makes without calling another service.

pub(crate) mod scope;
