//! Which tools a text may speak of.

/// A scope as a key: two requests with the same scope share a catalogue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Scope {
    /// The agent whose inventory counts; empty for none.
    pub(crate) profile_id: String,
    /// Just these tools; empty for the whole inventory, or every tool.
    pub(crate) tool_ids: Vec<String>,
}
