//! The repository's rules as tests.
//!
//! A rule is a function from a [`Tree`] to findings, and a finding has a place, a problem and a
//! remedy. `tests/it` checks this repository by every rule, and made-up trees that break it.
//!
//! * [`tree`]: the files that count.
//! * [`finding`]: the findings of rules.
//! * [`layout`]: the fixed top level, the files of every service, one way to lay out modules.
//! * [`manifests`]: the common form of manifests.
//! * [`circles`]: files and folders of one crate that import each other in a loop.
//! * [`edges`]: the allowed dependencies between crates, and the owners of shared crates.
//! * [`once`]: code that is written once, and its place.
//! * [`purity`]: names that are forbidden in a domain, in a service outside its store or in an
//!   owner of runs.
//! * [`sizes`]: the lengths of files, and the names of types.
//! * [`words`]: words that no file may contain.
//! * [`prose`]: words that are given up, and the remaining count of each.
//! * [`sentences`]: documentation that opens with a noun or a verb.
//! * [`pages`]: the length of the first page, and the files that pages name.
//! * [`error_page`]: the page of error reasons, made from the contract.
//! * [`unsafe_code`]: the place of unsafe code, and the reason next to it.
//! * [`rust_text`]: Rust source with comments and literals blanked out, which the rules read.

pub mod circles;
pub mod edges;
pub mod error_page;
pub mod finding;
pub mod layout;
pub mod manifests;
pub mod once;
pub mod pages;
pub mod prose;
pub mod purity;
pub mod rust_text;
pub mod sentences;
pub mod sizes;
pub mod tenants;
pub mod tree;
pub mod unsafe_code;
pub mod words;

pub use finding::Finding;
pub use tree::Tree;
