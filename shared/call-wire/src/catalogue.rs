//! Tools of the registry as the catalogue by which tags are distinguished from text.

use call_catalogue::{Absent, Catalogue, CatalogueError, Tool, ToolKind};
use contracts::tavern::registry::v1 as registry;
use serde_json::Value;

/// A tool list that is no catalogue.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueProblem {
    /// The schema of a tool is no JSON.
    #[error("the parameters of tool '{tool_id}' are not valid JSON")]
    Schema {
        /// The tool.
        tool_id: String,
        /// The error of the reader.
        #[source]
        source: serde_json::Error,
    },
    /// The tools contradict each other.
    #[error("the tools make no catalogue")]
    Catalogue(#[source] CatalogueError),
}

/// Makes the catalogue of `tools` and of `absent` ones, which have further `names` (pairs of a name and the id of its
/// tool).
///
/// # Errors
/// [`CatalogueProblem`] names the tool.
pub fn catalogue(
    tools: &[registry::Tool],
    absent: Absent,
    names: &[(String, String)],
) -> Result<Catalogue, CatalogueProblem> {
    let tools: Result<Vec<Tool>, _> = tools.iter().map(convert).collect();
    Catalogue::with_names(tools?, absent, names).map_err(CatalogueProblem::Catalogue)
}

fn convert(tool: &registry::Tool) -> Result<Tool, CatalogueProblem> {
    let parameters: Value =
        serde_json::from_str(&tool.parameters_json).map_err(|source| CatalogueProblem::Schema {
            tool_id: tool.tool_id.clone(),
            source,
        })?;
    let mut converted = Tool::new(&tool.tool_id, &tool.description, parameters);
    // Seed 002 section 4.2 lists workflows apart, as skills.
    if tool.implementation() == registry::ImplementationType::Workflow {
        converted.kind = ToolKind::Skill;
    }
    converted.read_only = tool.read_only;
    converted.idempotent = tool.idempotent;
    converted.parallel_safe = tool.parallel_safe;
    converted.strict = tool.strict;
    Ok(converted)
}
