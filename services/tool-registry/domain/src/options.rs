//! The options of a plugin (rules R111 and R112).
//!
//! - [`OptionDeclaration`]: an option as the manifest declares it, typed and bounded.
//! - [`OptionValues`]: values that keep all bounds, their states and the document for scripts.
//! - [`assignment`]: values written as `key=value` on a command line.
//! - `declaration`: the section `configOptions` of a manifest.
//! - `check`: one value against the bounds of its option.

pub mod assignment;
mod check;
mod declaration;
mod kind;
#[cfg(test)]
mod tests;
mod values;

pub(crate) use declaration::read_declarations;
pub use kind::{Choice, ListBounds, OptionDeclaration, OptionKind, OptionScope, TextBounds};
pub use values::{OptionState, OptionValues};

/// The most bytes of a value of the type `string`, and of a secret.
pub const MAX_LINE_BYTES: usize = 4 << 10;
/// The most bytes of a value of the type `text`, and of `json` as JSON.
pub const MAX_TEXT_BYTES: usize = 64 << 10;
/// The most entries of a `string_list`.
pub const MAX_LIST_ITEMS: usize = 1_000;
