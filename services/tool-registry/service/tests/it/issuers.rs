//! Tokens of issuers, and the principals whom they prove (rule S603).
//!
//! - `company`: a registry with an issuer in Python.
//! - `hostile`: tokens and sets of keys that prove no one.
//! - `keys`: the times at which keys are read.
//! - `rights`: the rights of issued principals, after the end of their tokens too.
//! - `settings`: settings of issuers that are refused.

mod company;
mod hostile;
mod keys;
mod rights;
mod settings;
