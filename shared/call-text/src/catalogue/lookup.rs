//! From a written name to a tool.

use super::Catalogue;
use crate::names;

/// How a written tool name was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameReading {
    /// The id or its published name.
    Exact,
    /// Another letter case (N6).
    CaseFolded,
    /// After taking off backticks or invisible characters (N7, V11).
    Cleaned,
}

/// What a written tool name means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolMatch {
    /// A visible tool: its position in the catalogue and how the name was read.
    Visible(usize, NameReading),
    /// A tool that exists and is not available here (N5).
    NotAvailable,
    /// No such tool (N4).
    Unknown,
}

impl Catalogue {
    /// Finds what a written tool name means.
    pub fn find(&self, written: &str) -> ToolMatch {
        if let Some(&index) = self.inner.exact.get(written) {
            return ToolMatch::Visible(index, NameReading::Exact);
        }
        let cleaned = names::clean(written);
        if let Some(&index) = self.inner.exact.get(cleaned.as_ref()) {
            return ToolMatch::Visible(index, NameReading::Cleaned);
        }
        let folded = cleaned.to_lowercase();
        if self.inner.hidden.iter().any(|id| *id == cleaned) {
            return ToolMatch::NotAvailable;
        }
        if let Some(Some(index)) = self.inner.folded.get(&folded) {
            return ToolMatch::Visible(*index, NameReading::CaseFolded);
        }
        if self.inner.hidden_folded.contains_key(&folded) {
            return ToolMatch::NotAvailable;
        }
        ToolMatch::Unknown
    }

    /// Up to three visible ids that resemble a written name, nearest first.
    pub fn nearest_tools(&self, written: &str) -> Vec<String> {
        let candidates = self
            .inner
            .entries
            .iter()
            .map(|entry| entry.tool.id.as_str());
        names::nearest(&names::clean(written), candidates)
    }
}
