//! Whether the tools that a definition names exist.

use call_outcome::Violation;
use tonic::Status;

use crate::domain::load::load;
use crate::domain::tool_choice;
use crate::service::Inner;

/// Returns a violation for each place of a definition that names a tool that does not exist. The
/// registry is asked only about definitions that name some.
///
/// # Errors
/// The registry does not answer.
pub(super) async fn unknown(inner: &Inner, text: &str) -> Result<Vec<Violation>, Status> {
    let loaded = load(text);
    let Some(workflow) = loaded.workflow else {
        return Ok(Vec::new());
    };
    let named = tool_choice::named(&workflow.nodes, &loaded.source);
    let ids = named.iter().map(|(_, id)| id.clone()).collect();
    let unknown = inner.runner.unknown_tools(ids).await?;
    let violation = |(pointer, id): (String, String)| {
        let message = format!("there is no tool `{id}`");
        Violation::new(pointer, "unknown_tool", message)
    };
    let named = named.into_iter().filter(|(_, id)| unknown.contains(id));
    Ok(named.map(violation).collect())
}
