//! The scanners: one for each family of dialects, and the tree that all of them build.

pub(crate) mod command;
pub(crate) mod context;
pub(crate) mod element;
pub(crate) mod fields;
pub(crate) mod json;
pub(crate) mod raw;
pub(crate) mod trained;
