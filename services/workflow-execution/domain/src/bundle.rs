//! A definition with the texts of the workflows that it refers to.
//!
//! A run executes the bundle that it started with, so that editing a referenced workflow does not
//! change runs in progress (rule W4).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The texts of referenced workflows by id.
pub type Children = BTreeMap<String, Arc<str>>;

/// A definition with the texts of the workflows that it refers to, directly and through others.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Bundle {
    /// The definition.
    pub root: Arc<str>,
    /// The referenced workflows. A workflow that does not exist is missing here, which is a
    /// violation.
    pub children: Arc<Children>,
    /// The node types of plugins that the texts name, by full type, each as
    /// [`PluginNodeType`](super::plugin_node::PluginNodeType) writes it. A type that no plugin in force brings is missing
    /// here, which is a violation.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub node_types: Arc<Children>,
}

fn is_empty(texts: &Arc<Children>) -> bool {
    texts.is_empty()
}

impl Bundle {
    /// Makes a bundle of a definition alone.
    pub fn of(root: impl Into<Arc<str>>) -> Self {
        Self {
            root: root.into(),
            children: Arc::default(),
            node_types: Arc::default(),
        }
    }

    /// Whether it is the definition and nothing else.
    pub fn is_alone(&self) -> bool {
        self.children.is_empty() && self.node_types.is_empty()
    }

    /// Returns the number of bytes of all texts.
    pub fn bytes(&self) -> usize {
        let texts = self.children.values().chain(self.node_types.values());
        self.root.len() + texts.map(|text| text.len()).sum::<usize>()
    }

    /// Writes the bundle as one text.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).expect("texts by text keys always serialise")
    }

    /// Reads a text of [`Bundle::to_text`]; none if the text is damaged.
    pub fn from_text(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_reads_back_as_it_was_written() {
        let children = Children::from([("a".to_owned(), "{}".into())]);
        let bundle = Bundle {
            children: Arc::new(children),
            ..Bundle::of("{\"nodes\":[]}")
        };
        assert_eq!(Bundle::from_text(&bundle.to_text()), Some(bundle));
        assert_eq!(Bundle::from_text("{"), None);
    }
}
