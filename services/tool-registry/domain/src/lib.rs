//! What a tool is: definitions, schemas, names, results.
//!
//! Everything here is synchronous and without input or output: tool-registry reads files, stores what was
//! put, and executes calls.
//!
//! - [`diagnostic`]: findings about definitions that were loaded.
//! - [`definition`]: both forms of `*.tool.json`.
//! - [`program`]: the command of a script tool.
//! - [`manifest`]: the file `plugin.yaml`.
//! - [`package`]: which names the files of a plugin may have.
//! - [`interface`]: tools that are derived from workflows and from node types.
//! - [`node_interface`], [`parameters`]: what they take, as a JSON Schema.
//! - [`tool`]: a definition with its schema compiled, ready to be called.
//! - [`naming`]: aliases and reserved words.
//! - [`catalogue`]: all tools that are known by definition, found by id or alias.
//! - [`script_output`]: what a script's JSON answer means.
//! - [`availability`]: whether a tool can be called in a scope.
//! - [`approval`]: which calls wait for people, and how they decide.
//! - [`diff`]: search-and-replace blocks and unified diffs.
//! - [`path`]: paths as models write them.

pub mod approval;
pub mod availability;
pub mod catalogue;
pub mod definition;
pub mod diagnostic;
pub mod diff;
pub mod interface;
pub mod manifest;
pub mod naming;
pub mod node_interface;
pub mod package;
pub mod parameters;
pub mod path;
pub mod program;
pub mod script_output;
pub mod tool;
