//! The tools that a text may call.

/// A scope as a key: two requests with the same scope share a catalogue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Scope {
    /// The agent whose inventory counts; empty for none.
    pub(crate) profile_id: String,
    /// The selected tools; empty for the whole inventory, or every tool.
    pub(crate) tool_ids: Vec<String>,
}
