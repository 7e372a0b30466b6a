//! Joins the text library and the schema checker to the contract.
//!
//! [`call_text`] and [`json_schema`] know no protobuf, and every service that links them shows
//! what they found in the same messages of `tavern.common.v1`. The conversions stand here once:
//! fallible inward ([`catalogue()`], [`dialect_from_proto`]), infallible outward.

mod catalogue;
mod dialect;
mod observation;
mod parsed;
mod violation;

pub use catalogue::{CatalogueProblem, catalogue};
pub use dialect::{UnknownDialect, dialect_from_proto, dialect_to_proto, finish_reason};
pub use observation::observation;
pub use parsed::{
    call_to_proto, diagnostic_to_proto, parsed_to_proto, span_to_proto, told_call_to_proto,
};
pub use violation::{problem_to_proto, violation_to_proto};
