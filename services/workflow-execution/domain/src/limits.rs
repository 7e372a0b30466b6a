//! The bounds of a definition and of its values. Reaching one is a violation or a failed node,
//! never a truncation.

/// The longest definition, in bytes.
pub const MAX_DEFINITION_BYTES: usize = 4 * 1024 * 1024;

/// The deepest nesting of JSON in a definition or in run inputs.
pub const MAX_JSON_DEPTH: usize = 64;

/// The most nodes of one workflow.
pub const MAX_NODES: usize = 10_000;

/// The most edges of one workflow.
pub const MAX_EDGES: usize = 50_000;

/// The most interface inputs, and the most outputs, of one workflow.
pub const MAX_INTERFACE_SLOTS: usize = 1_000;

/// The longest id of a node, edge or slot, in bytes.
pub const MAX_NAME_BYTES: usize = 256;

/// The deepest nesting of groups.
pub const MAX_GROUP_DEPTH: usize = 16;

/// The most workflows that a definition refers to, directly and through others.
pub const MAX_CHILDREN: usize = 256;

/// The most bytes of a definition together with the workflows that it refers to.
pub const MAX_BUNDLE_BYTES: usize = 16 * 1024 * 1024;

/// The largest run input or outputs of one node, as JSON text in bytes.
pub const MAX_VALUE_BYTES: usize = 512 * 1024;

/// The most bytes that the values of one run may hold together, so that a doubling chain of nodes
/// ends in a failed node and not in an exhausted machine.
pub const MAX_RUN_BYTES: usize = 64 * 1024 * 1024;

/// The most violations that are listed; counting stops there.
pub const MAX_VIOLATIONS: usize = 500;

/// The most violations of one text that come with suggestions, which are costly to find.
pub const MAX_SUGGESTED: usize = 16;

/// The most handled failures that are listed.
pub const MAX_HANDLED: usize = 100;

/// The most cycles that are listed.
pub const MAX_CYCLES: usize = 8;
