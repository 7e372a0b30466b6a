//! Principals as they are stored, their keys, and the tools that they may call.
//!
//! - [`key`]: keys, from their creation to their end.
//! - [`tool_rights`]: patterns of the tools that a principal may call.
//! - [`accounts`]: every principal with keys of an installation, and the decisions about changes.
//! - [`issuer`]: issuers, and the tokens by which they prove principals.
//! - [`issued`]: the principals whom tokens proved.

pub mod accounts;
pub mod issued;
pub mod issuer;
pub mod key;
pub mod tool_rights;

pub use accounts::{Account, Accounts, Refusal};
pub use issued::{Block, IssuedPrincipals, LastToken};
pub use issuer::{Issuer, IssuerToken, KeySet, TokenFault};
pub use key::{Key, KeyOrigin};
pub use tool_rights::{ToolRights, ToolVerdict};
