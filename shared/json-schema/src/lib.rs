//! Compiles JSON Schemas, validates arguments and names every violation.
//!
//! A schema comes from a plugin author or a backend, and an instance comes from a language model:
//! neither is trusted. So a schema is priced before it is compiled (size, depth, references,
//! patterns, and how many times one part of an instance can be visited), an instance is measured
//! before it is validated, and both are refused with the place and the remedy.
//!
//! * [`limits`]: every bound of this crate, with its default.
//! * [`strict_json`]: reads JSON text without losing digits or swallowing duplicate keys.
//! * [`schema`]: [`Schema`], the compiled form: validate, name parameters, fill in defaults.
//! * [`part`]: one part of a compiled schema, for values under it.
//! * [`compile_error`]: the problems of a schema.
//! * [`violation`]: the violations of an instance, all of them at once.
//! * [`pointer`]: places within a value.
//! * [`names`]: "did you mean".
//!
//! Formats are annotations unless [`limits::CompileOptions::assert_formats`] is chosen, references
//! never leave the document, and patterns run on a linear-time engine.

pub mod compile_error;
mod cost;
mod defaults;
mod explain;
mod graph;
pub mod limits;
mod listed;
pub mod names;
pub mod part;
mod pattern;
pub mod pointer;
mod precheck;
pub mod schema;
pub mod strict_json;
mod text_size;
pub mod violation;

pub use compile_error::{CompileCode, CompileErrors, CompileProblem};
pub use defaults::DefaultsError;
pub use limits::{CompileOptions, JsonLimits, Limits};
pub use names::{is_near, nearest_names, squash};
pub use part::SchemaPart;
pub use schema::Schema;
pub use strict_json::{
    JsonError, JsonProblem, JsonProblemKind, parse_json_strict, parse_json_strict_with,
};
pub use text_size::text_bytes;
pub use violation::{Violation, ViolationCode, cut};
