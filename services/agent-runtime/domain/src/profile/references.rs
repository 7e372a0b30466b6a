//! The names in a profile that have to resolve for its agent to work: tools, workflows, models and
//! knowledge.

use core_types::{Reference, ReferenceKind};

use super::{Profile, TavernSection, tavern::PLACE, workflow_stem};
use crate::spelling;

/// The tool id that means all tools.
const ALL: &str = "*";

impl Profile {
    /// Returns every name in the profile, with its place.
    pub fn references(&self) -> Vec<Reference> {
        let mut all = Vec::new();
        let tools = self.tool_ids.iter().enumerate();
        all.extend(tools.map(|(at, name)| tool(format!("/tool_ids_inventory/{at}"), name)));
        let skills = self.skill_tool_ids.iter().enumerate();
        all.extend(skills.map(|(at, name)| {
            let place = format!("/skill_workflow_ids_inventory/{at}");
            workflow(place, name)
        }));
        if let Some(id) = &self.deliberation {
            all.push(workflow("/core_deliberation_workflow_id", id));
        }
        for (at, known) in self.knowledge.iter().enumerate() {
            let place = format!("/knowledge_base_references/{at}/source_id");
            let kind = ReferenceKind::Knowledge;
            all.push(Reference::new(place, kind, known.source_id.as_str()));
        }
        if self.deliberation.is_none() && self.tavern.model.is_none() {
            // The default model deliberates.
            all.push(Reference::new(
                format!("{PLACE}/model"),
                ReferenceKind::Model,
                "",
            ));
        }
        all.extend(self.tavern.references(PLACE));
        all
    }
}

impl TavernSection {
    /// Returns every name in the section at a place of a document.
    pub fn references(&self, place: &str) -> Vec<Reference> {
        let model = |place: String, name: &str| Reference::new(place, ReferenceKind::Model, name);
        let mut all = Vec::new();
        if let Some(name) = &self.model {
            all.push(model(format!("{place}/model"), name));
        }
        for (at, name) in self.fallbacks.iter().flatten().enumerate() {
            all.push(model(format!("{place}/fallbacks/{at}"), name));
        }
        let compaction = self.compaction.as_ref();
        if let Some(id) = compaction.and_then(|compaction| compaction.workflow.as_ref()) {
            all.push(workflow(format!("{place}/compaction/workflow"), id));
        }
        for (at, reduction) in self.reduction.iter().flatten().enumerate() {
            let place = format!("{place}/reduction/{at}");
            all.push(workflow(format!("{place}/workflow"), &reduction.workflow));
            let named = reduction.tools.iter().enumerate();
            let named = named.filter(|(_, name)| *name != ALL);
            all.extend(named.map(|(at, name)| tool(format!("{place}/tools/{at}"), name)));
        }
        all
    }
}

fn tool(place: String, name: &str) -> Reference {
    Reference::new(place, ReferenceKind::Tool, spelling::tool_id(name))
}

/// Makes the reference to a workflow that is named by its id, its tool or its path.
fn workflow(place: impl Into<String>, written: &str) -> Reference {
    Reference::new(place, ReferenceKind::Workflow, workflow_stem(written))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::profile;

    fn named(profile: &Value) -> Vec<(String, String)> {
        let profile = profile::read(&profile.to_string()).unwrap();
        let references = profile.references().into_iter();
        references
            .map(|reference| (reference.path, reference.id))
            .collect()
    }

    #[test]
    fn everything_that_a_profile_names_has_its_place() {
        let profile = json!({
            "id": "elara",
            "tool_ids_inventory": ["kb:Query", "agent:gm"],
            "skill_workflow_ids_inventory": ["workflows/skills/greet.json"],
            "core_deliberation_workflow_id": "workflows/think.json",
            "knowledge_base_references": [{"source_id": "lore"}],
            "custom_metadata": {"tavern": {
                "model": "house",
                "fallbacks": ["spare"],
                "compaction": {"workflow": "sum_up"},
                "reduction": [{"tools": ["*", "look"], "workflow": "shorten"}],
            }},
        });
        let expected = [
            ("/tool_ids_inventory/0", "QueryKnowledgeBaseTool"),
            ("/tool_ids_inventory/1", "agent:gm"),
            ("/skill_workflow_ids_inventory/0", "greet"),
            ("/core_deliberation_workflow_id", "think"),
            ("/knowledge_base_references/0/source_id", "lore"),
            ("/custom_metadata/tavern/model", "house"),
            ("/custom_metadata/tavern/fallbacks/0", "spare"),
            ("/custom_metadata/tavern/compaction/workflow", "sum_up"),
            ("/custom_metadata/tavern/reduction/0/workflow", "shorten"),
            ("/custom_metadata/tavern/reduction/0/tools/1", "look"),
        ];
        let expected = expected.map(|(path, id)| (path.to_owned(), id.to_owned()));
        assert_eq!(named(&profile), expected);
    }

    #[test]
    fn the_default_model_is_needed_only_where_nothing_else_deliberates() {
        let model = ("/custom_metadata/tavern/model".to_owned(), String::new());
        assert_eq!(named(&json!({"id": "a"})), [model]);
        let deliberates = json!({"id": "a", "core_deliberation_workflow_id": "think"});
        assert_eq!(named(&deliberates).len(), 1);
    }
}
