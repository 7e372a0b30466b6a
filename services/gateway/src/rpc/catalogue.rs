//! Tools that a caller declares with its request, checked.

use std::collections::HashSet;

use call_catalogue::{Catalogue, Tool};
use contracts::tavern::gateway::v1::{ToolCatalogue, ToolDeclaration, ToolScope};
use core_types::ToolId;
use json_schema::Schema;
use serde_json::{Map, Value};

use super::problems::Problems;
use crate::domain::scope::Scope;

/// The most tools of a catalogue.
const MAX_TOOLS: usize = 500;

/// The most bytes of all their texts together.
pub(super) const MAX_BYTES: usize = 4 << 20;

/// The source of the tools that a text may call.
#[derive(Clone, Debug)]
pub(super) enum ToolSource {
    /// From the registry.
    Registry(Scope),
    /// From the caller.
    Caller(Catalogue),
}

/// Reads the source of the tools.
pub(super) fn read_tools(
    scope: Option<ToolScope>,
    catalogue: Option<ToolCatalogue>,
    problems: &mut Problems,
) -> ToolSource {
    let scope = scope.unwrap_or_default();
    let scope = Scope {
        profile_id: scope.profile_id,
        tool_ids: scope.tool_ids,
    };
    problems.scope(&scope);
    let Some(ToolCatalogue { tools }) = catalogue else {
        return ToolSource::Registry(scope);
    };
    if scope != Scope::default() {
        let problem = "cannot be combined with catalogue; leave one of the two out";
        problems.add("scope", problem);
    }
    let bytes: usize = tools.iter().map(bytes_of).sum();
    if tools.len() > MAX_TOOLS || bytes > MAX_BYTES {
        let problem = format!(
            "has {} tools of {bytes} bytes, but at most {MAX_TOOLS} tools of {MAX_BYTES} bytes are allowed",
            tools.len()
        );
        problems.add("catalogue.tools", problem);
        return ToolSource::Caller(Catalogue::default());
    }
    let mut seen = HashSet::new();
    let mut read = Vec::with_capacity(tools.len());
    for (index, tool) in tools.into_iter().enumerate() {
        let path = format!("catalogue.tools[{index}]");
        if !seen.insert(tool.tool_id.clone()) {
            problems.add(&format!("{path}.tool_id"), "is declared twice");
        }
        read.extend(read_tool(tool, &path, problems));
    }
    match Catalogue::new(read, Vec::new()) {
        Ok(catalogue) => ToolSource::Caller(catalogue),
        Err(error) => {
            // A repeated entry was reported by its position.
            if problems.is_empty() {
                problems.add("catalogue", error.to_string());
            }
            ToolSource::Caller(Catalogue::default())
        }
    }
}

fn bytes_of(tool: &ToolDeclaration) -> usize {
    tool.tool_id.len() + tool.description.len() + tool.parameters_json.len()
}

fn read_tool(tool: ToolDeclaration, path: &str, problems: &mut Problems) -> Option<Tool> {
    let id = ToolId::new(tool.tool_id)
        .map_err(|error| problems.add(&format!("{path}.tool_id"), error.to_string()));
    let field = format!("{path}.parameters_json");
    let parameters = match tool.parameters_json.as_str() {
        "" => Some(Value::Object(Map::new())),
        text => problems.json(&field, text),
    }?;
    if let Err(errors) = Schema::compile_parameters(&parameters) {
        for problem in errors.problems {
            problems.add(&format!("{field}{}", problem.pointer), problem.message);
        }
        return None;
    }
    let mut read = Tool::new(id.ok()?.to_string(), tool.description, parameters);
    read.read_only = tool.read_only;
    read.strict = tool.strict;
    read.parallel_safe = tool.parallel_safe;
    Some(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(tool_id: &str, parameters_json: &str) -> ToolDeclaration {
        ToolDeclaration {
            tool_id: tool_id.to_owned(),
            parameters_json: parameters_json.to_owned(),
            ..ToolDeclaration::default()
        }
    }

    fn read(
        tools: Vec<ToolDeclaration>,
        scope: Option<ToolScope>,
    ) -> Result<Catalogue, Vec<String>> {
        let mut problems = Problems::new();
        let read = read_tools(scope, Some(ToolCatalogue { tools }), &mut problems);
        let read = problems.or(read).map_err(|status| {
            let violations = grpc_kit::violations(&status).into_iter();
            violations.map(|(field, _)| field).collect::<Vec<_>>()
        })?;
        match read {
            ToolSource::Caller(catalogue) => Ok(catalogue),
            ToolSource::Registry(scope) => panic!("the registry would be asked: {scope:?}"),
        }
    }

    #[test]
    fn every_wrong_declaration_is_named_by_its_place() {
        let tools = vec![
            tool("good", ""),
            tool("", "{}"),
            tool("good", "{"),
            tool("typed", r#"{"type": "string"}"#),
            tool("nested", r#"{"properties": {"a": {"type": "strin"}}}"#),
        ];
        let scope = ToolScope {
            profile_id: "ada".to_owned(),
            ..ToolScope::default()
        };
        let wrong = read(tools, Some(scope)).expect_err("the catalogue is wrong");
        for field in [
            "scope",
            "catalogue.tools[1].tool_id",
            "catalogue.tools[2].tool_id",
            "catalogue.tools[2].parameters_json",
            "catalogue.tools[3].parameters_json",
        ] {
            assert!(
                wrong.iter().any(|wrong| wrong == field),
                "{field}: {wrong:?}"
            );
        }
        let nested = "catalogue.tools[4].parameters_json/properties/a/type";
        assert!(wrong.iter().any(|wrong| wrong == nested), "{wrong:?}");
    }

    #[test]
    fn a_catalogue_has_at_most_500_tools_of_4_mib() {
        let many = (0..501)
            .map(|number| tool(&format!("t{number}"), ""))
            .collect();
        assert_eq!(
            read(many, None).err(),
            Some(vec!["catalogue.tools".to_owned()])
        );
        let mut large = tool("large", "");
        large.description = "x".repeat(MAX_BYTES);
        assert!(read(vec![large], None).is_err());
    }

    #[test]
    fn what_is_declared_reaches_the_parser() {
        let mut declared = tool(
            "look",
            r#"{"type": "object", "properties": {"at": {"type": "string"}}}"#,
        );
        declared.read_only = true;
        declared.parallel_safe = true;
        let catalogue = read(vec![declared], None).unwrap();
        let read = catalogue.tool("look").unwrap();
        assert!(read.read_only && read.parallel_safe && !read.strict);
        assert!(self::read(Vec::new(), None).unwrap().is_empty());
    }
}
