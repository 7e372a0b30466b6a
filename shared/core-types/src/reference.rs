//! Names in a definition that refer to documents, tools and settings elsewhere.

use crate::LoadDiagnostic;

/// The kind of target of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReferenceKind {
    /// An agent profile.
    Profile,
    /// A knowledge base.
    Knowledge,
    /// A scene.
    Scene,
    /// A workflow.
    Workflow,
    /// A tool.
    Tool,
    /// A language model of the settings.
    Model,
    /// A language of scripts that the sandbox executes.
    Language,
    /// A method of a gRPC backend, as `backend/method`.
    Backend,
    /// A type of nodes.
    NodeType,
}

impl ReferenceKind {
    /// Returns the sentence about a name without a target, with the remedy.
    fn problem(self, id: &str) -> String {
        let stored = |kind: &str| format!("no {kind} has the id `{id}`; store it");
        match self {
            Self::Profile => stored("agent profile"),
            Self::Knowledge => stored("knowledge base"),
            Self::Scene => stored("scene"),
            Self::Workflow => stored("workflow"),
            Self::Tool => format!("there is no tool `{id}` now; add it, or take it out"),
            Self::Model if id.is_empty() => {
                "no model is named and the settings have no default_model; name one".to_owned()
            }
            Self::Model => {
                format!("no model is called `{id}` in the settings; add it, or name another")
            }
            Self::Language => {
                format!("the sandbox has no language `{id}`; install it, or name another")
            }
            Self::Backend => format!("no backend has the method `{id}`; add the backend"),
            Self::NodeType if id.contains(':') && !id.starts_with("core:") => format!(
                "no plugin in force brings the node type `{id}`; install its plugin, switch it on, or name another type"
            ),
            Self::NodeType => format!("no node type is called `{id}`; name another"),
        }
    }
}

/// A name in a definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The JSON pointer of the name.
    pub path: String,
    /// The kind of target.
    pub kind: ReferenceKind,
    /// The id of the target; empty means the default.
    pub id: String,
}

impl Reference {
    /// Makes a reference.
    pub fn new(path: impl Into<String>, kind: ReferenceKind, id: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            kind,
            id: id.into(),
        }
    }

    /// Makes the finding that the target is missing now: a warning, as definitions that name each
    /// other are stored one after the other.
    pub fn missing(&self) -> LoadDiagnostic {
        let shown: String = self.id.chars().take(120).collect();
        LoadDiagnostic {
            code: "missing_reference",
            ..LoadDiagnostic::not_supported(self.path.as_str(), self.kind.problem(&shown))
        }
    }
}
