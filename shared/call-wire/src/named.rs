//! Tools that the registry found, with the requested names.

use contracts::tavern::registry::v1 as registry;

/// The tools that the registry found for names. A tool of several names appears once, under the
/// first name.
#[derive(Clone, Debug, Default)]
pub struct NamedTools {
    /// The tools with their names, in the order of the names.
    pub tools: Vec<(String, registry::Tool)>,
    /// The names that no tool has, in their order.
    pub missing: Vec<String>,
}

impl NamedTools {
    /// Adds the answer of `BatchGetTools` to a request for these names.
    pub fn add(&mut self, names: &[String], found: registry::BatchGetToolsResponse) {
        self.missing.extend_from_slice(&found.missing_tool_ids);
        for (name, tool) in with_names(names, found) {
            if !self.has(&tool.tool_id) {
                self.tools.push((name, tool));
            }
        }
    }

    /// Whether the tool of this id is among them.
    pub fn has(&self, tool_id: &str) -> bool {
        self.tools.iter().any(|(_, tool)| tool.tool_id == tool_id)
    }
}

/// Returns the tools of the answer of `BatchGetTools`, each with the requested name.
pub fn with_names(
    names: &[String],
    found: registry::BatchGetToolsResponse,
) -> Vec<(String, registry::Tool)> {
    let without_tool = [&found.missing_tool_ids, &found.hidden_tool_ids];
    let has_tool = |name: &&String| !without_tool.iter().any(|names| names.contains(name));
    let names = names.iter().filter(has_tool).cloned();
    names.zip(found.tools).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tool_stands_once_by_the_first_of_its_names() {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let tool = |tool_id: &str| registry::Tool {
            tool_id: tool_id.to_owned(),
            ..registry::Tool::default()
        };
        let names: Vec<String> = texts(&["nothing", "kb__Query", "hidden", "kb:Query", "read"]);
        let mut named = NamedTools::default();
        named.add(
            &names,
            registry::BatchGetToolsResponse {
                tools: ["kb:Query", "kb:Query", "read"].map(tool).into(),
                missing_tool_ids: texts(&["nothing"]),
                hidden_tool_ids: texts(&["hidden"]),
            },
        );
        let pairs = named.tools.iter();
        let pairs: Vec<_> = pairs
            .map(|(name, tool)| (name.as_str(), tool.tool_id.as_str()))
            .collect();
        assert_eq!(pairs, [("kb__Query", "kb:Query"), ("read", "read")]);
        assert_eq!(named.missing, ["nothing"]);
    }
}
