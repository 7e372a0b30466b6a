//! The repository's rules as tests.
//!
//! A rule is a function from a [`Tree`] to findings, and a finding says where, what and how to mend
//! it. `tests/it` holds every rule against this repository, and against made-up trees that break it.
//!
//! * [`tree`]: the files that count.
//! * [`finding`]: what a rule answers with.
//! * [`layout`]: the fixed top level, the files of every service, one way to lay out modules.
//! * [`manifests`]: what every manifest says.
//! * [`circles`]: files and folders of one crate that import each other in a loop.
//! * [`edges`]: which crate may depend on which, and how many services a shared crate serves.
//! * [`once`]: what is written once, and where.
//! * [`purity`]: what a domain, a service outside its store or an owner of runs may not name.
//! * [`sizes`]: how long files and functions may be.
//! * [`words`]: what no file may contain.
//! * [`prose`]: words that are given up, and how often each may still stand.
//! * [`pages`]: how long the first page may be, and that pages name only files that exist.
//! * [`error_page`]: the page of error reasons, made from the contract.
//! * [`unsafe_code`]: where unsafe code may stand, and what stands beside it.
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
pub mod sizes;
pub mod tree;
pub mod unsafe_code;
pub mod words;

pub use finding::Finding;
pub use tree::Tree;
