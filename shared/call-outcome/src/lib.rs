//! The outcome of a call, the same for tools, workflow nodes and scripts.
//!
//! * [`CallOutcome`]: the outcome of a call, and [`LongOutput`], if its output is kept elsewhere.
//! * [`Category`] and [`Failure`]: the reason for which it did not succeed.
//! * [`Violation`]: a fault in JSON from outside.
//! * [`Verdict`]: the end of a script, in the words of the sandbox, and the failure that follows
//!   from it.
//! * [`repetition`]: calls that are repeated with the same result.
//! * [`code_error`]: the exception that an interpreter printed.
//! * [`missing_package`]: the package that code wanted and did not find.
//!
//! The crate is pure and knows no protobuf; `call-wire` converts its types to the contract and back.

mod category;
pub mod code_error;
mod failure;
pub mod missing_package;
mod outcome;
pub mod repetition;
mod violation;
mod written;

pub use category::Category;
pub use code_error::CodeError;
pub use failure::{Failure, FailureInner};
pub use outcome::{CallOutcome, LongOutput};
pub use violation::{Violation, sentences};
pub use written::{Written, tail};
