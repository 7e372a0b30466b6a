//! The definition of tools: schemas, names, results.
//!
//! The crate is synchronous and without input or output: tool-registry reads files, stores put
//! definitions, and executes calls.
//!
//! - [`diagnostic`]: findings about definitions that were loaded.
//! - [`definition`]: both forms of `*.tool.json`.
//! - [`program`]: the command of a script tool.
//! - [`manifest`]: the file `plugin.yaml`.
//! - [`permissions`]: the rights that a plugin asks for.
//! - [`hook_point`]: the points at which hooks of plugins run.
//! - [`options`]: the options of a plugin, and values for them.
//! - [`package`]: the files of a plugin, and their names.
//! - [`plan`]: the plan of a change of a plugin, which a person approves.
//! - [`interface`]: tools that are derived from workflows and from node types.
//! - [`node_interface`], [`parameters`]: the inputs of workflows and nodes, as a JSON Schema.
//! - [`tool`]: a definition with its schema compiled, ready to be called.
//! - [`naming`]: aliases and reserved words.
//! - [`catalogue`]: all tools that have a definition, found by id or alias.
//! - [`script_output`]: the meaning of a script's JSON answer.
//! - [`availability`]: the availability of a tool in a scope.
//! - [`approval`]: the approvals of calls by people.
//! - [`identity`]: principals, their keys and the tools that they may call.
//! - [`tenant`]: tenants, and the decisions about changes.
//! - [`diff`]: search-and-replace blocks and unified diffs.
//! - [`path`]: paths as models write them.

pub mod approval;
pub mod availability;
pub mod catalogue;
pub mod definition;
pub mod diagnostic;
pub mod diff;
pub mod hook_point;
pub mod identity;
pub mod interface;
pub mod manifest;
pub mod naming;
pub mod node_interface;
pub mod options;
pub mod package;
pub mod parameters;
pub mod path;
pub mod permissions;
pub mod plan;
pub mod plugin_node;
pub mod program;
pub mod script_output;
mod section;
pub mod tenant;
pub mod tool;
