//! Principals as they are stored, their keys, and the tools that they may call.
//!
//! - [`key`]: keys, from their creation to their end.
//! - [`tool_rights`]: patterns of the tools that a principal may call.
//! - [`accounts`]: every principal of an installation, and the decisions about changes.

pub mod accounts;
pub mod key;
pub mod tool_rights;

pub use accounts::{Account, Accounts, Refusal};
pub use key::{Key, KeyOrigin};
pub use tool_rights::{ToolRights, ToolVerdict};
