//! From a written name to a tool.

use super::{Catalogue, alias};
use crate::names;

/// The way in which a written tool name was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameReading {
    /// The id or its published name.
    Exact,
    /// Another letter case (N6).
    CaseFolded,
    /// After taking off backticks or invisible characters, or as a skill or node is named without
    /// the prefix of its id (N7, V11).
    Cleaned,
}

/// The meaning of a written tool name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolMatch {
    /// A visible tool: its position in the catalogue and the reading of the name.
    Visible(usize, NameReading),
    /// A tool that exists and is not available here (N5).
    NotAvailable,
    /// A tool that a plugin brought and brings no more: its position in the catalogue (N5).
    Removed(usize),
    /// No such tool (N4).
    Unknown,
}

impl Catalogue {
    /// Finds the tool of a written name.
    pub fn find(&self, written: &str) -> ToolMatch {
        if !self.inner.lengths.may_hold(written) && names::is_all_plain(written) {
            return ToolMatch::Unknown;
        }
        if let Some(&index) = self.inner.exact.get(written) {
            return ToolMatch::Visible(index, NameReading::Exact);
        }
        let cleaned = names::clean(written);
        if cleaned.len() != written.len()
            && let Some(&index) = self.inner.exact.get(cleaned.as_ref())
        {
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
        if let Some(Some(index)) = self.inner.other_names.get(&*alias::skill_of(&cleaned)) {
            return ToolMatch::Visible(*index, NameReading::Cleaned);
        }
        let removed = self.inner.removed_folded.get(&folded);
        removed.map_or(ToolMatch::Unknown, |index| ToolMatch::Removed(*index))
    }

    /// Whether a written name means a visible tool.
    pub fn has_visible(&self, written: &str) -> bool {
        matches!(self.find(written), ToolMatch::Visible(..))
    }

    /// Up to three visible ids that resemble a written name, nearest first.
    pub fn nearest_tools(&self, written: &str) -> Vec<String> {
        self.by_nearness(written).0
    }

    /// Up to three visible ids that resemble a written name, and all of them, nearest first.
    pub fn by_nearness(&self, written: &str) -> (Vec<String>, Vec<&str>) {
        let ids = self.inner.entries.iter();
        let ids = ids.map(|entry| entry.tool.id.as_str());
        let ranked = names::rank_tools(&names::clean(written), ids);
        let near = ranked.iter().filter(|(_, near, _)| *near).take(3);
        let near = near.map(|(_, _, id)| (*id).to_owned()).collect();
        (near, ranked.into_iter().map(|(_, _, id)| id).collect())
    }
}
