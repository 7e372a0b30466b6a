//! Joins the texts of calls and their outcomes to the contract.
//!
//! [`call_catalogue`], [`call_text`], [`call_prompt`] and [`call_outcome`] know no protobuf, and
//! every service that links them reports their results in the same messages of `tavern.common.v1`.
//! The conversions are here, once: fallible inward ([`catalogue()`], [`dialect_from_proto`]),
//! infallible outward.

mod catalogue;
mod dialect;
mod load_diagnostic;
mod model_totals;
mod named;
mod native;
mod observation;
mod outcome;
mod parsed;
mod problem;
mod question;
mod retry;
mod tool_list;
mod verdict;

pub use catalogue::{CatalogueProblem, catalogue};
pub use dialect::{UnknownDialect, dialect_from_proto, dialect_to_proto};
pub use load_diagnostic::load_diagnostic_to_proto;
pub use model_totals::{ModelTotals, total_of_answer};
pub use named::{NamedTools, with_names};
pub use native::{
    ended_call_from_proto, ended_call_to_proto, native_calls_from_proto, native_calls_to_proto,
    reasoning_from_proto, reasoning_to_proto,
};
pub use observation::{category_name, gives_handle, observation, output_bytes};
pub use outcome::{
    failure_from_proto, failure_to_proto, outcome_from_proto, outcome_to_proto,
    violation_from_proto, violation_to_proto,
};
pub use parsed::{
    call_to_proto, call_with_diagnostics_to_proto, diagnostic_to_proto, parsed_to_proto,
    span_to_proto,
};
pub use problem::problem_to_proto;
pub use question::question_ended;
pub use retry::{MAX_ATTEMPTS, granted_retries, next_attempt};
pub use tool_list::ToolList;
pub use verdict::{exit_code, script_failure};
