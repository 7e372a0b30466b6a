//! The names under which profiles list tools of the platform (rule G307). The model sees the name
//! in its profile, and the registry receives the id of the tool.

/// The tool that asks a person.
pub const QUESTION: &str = "RequestUserInteractionTool";

/// The tools that have other names, with these.
const NAMES: [(&str, &[&str]); 10] = [
    (
        "ReadPrivateStateTool",
        &["core:ReadPrivateState", "ReadPrivateState"],
    ),
    (
        "UpdatePrivateStateTool",
        &["core:UpdatePrivateState", "UpdatePrivateState"],
    ),
    ("ReadWorldStateTool", &["world:ReadState", "ReadWorldState"]),
    (
        "RequestWorldStateUpdateTool",
        &[
            "world:UpdateState",
            "UpdateWorldStateTool",
            "UpdateWorldState",
        ],
    ),
    ("PublishEventTool", &["event:Publish", "PublishEvent"]),
    ("SleepTool", &["core:Sleep"]),
    ("UpdateGoalTool", &["core:UpdateGoal"]),
    (
        "QueryKnowledgeBaseTool",
        &["kb:Query", "QueryKnowledgeBase"],
    ),
    (
        "WriteToKnowledgeBaseTool",
        &["kb:WriteEntry", "WriteToKnowledgeBase"],
    ),
    (
        QUESTION,
        &[
            "ui:RequestUserInteraction",
            "RequestUserInteraction",
            "ui.request_user_choice",
        ],
    ),
];

/// The tools by which a model uses handles. Every agent has them once a call returned a handle.
pub const HANDLE_TOOLS: [&str; 3] = ["system:read_stream", "system:list_handles", "system:cancel"];

/// The tools that read and change the states of the agent itself and of its scene.
const STATE_TOOLS: [&str; 5] = [
    "ReadPrivateStateTool",
    "UpdatePrivateStateTool",
    "ReadWorldStateTool",
    "RequestWorldStateUpdateTool",
    "UpdateGoalTool",
];

/// Whether a tool, by the name in a profile, reads or changes the states of the agent itself or of its scene.
pub fn is_state_tool(written: &str) -> bool {
    STATE_TOOLS.contains(&tool_id(written))
}

/// Returns the id of the tool that a profile names.
pub fn tool_id(written: &str) -> &str {
    let named = NAMES.iter().find(|(_, names)| names.contains(&written));
    named.map_or(written, |(id, _)| id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g307_other_names_mean_the_tool_and_all_others_themselves() {
        assert_eq!(tool_id("core:ReadPrivateState"), "ReadPrivateStateTool");
        assert_eq!(tool_id("UpdatePrivateStateTool"), "UpdatePrivateStateTool");
        assert_eq!(tool_id("kb:Query"), "QueryKnowledgeBaseTool");
        assert_eq!(tool_id("kb:Other"), "kb:Other");
    }
}
