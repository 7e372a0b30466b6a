//! The goals of an agent (rule G106): a JSON object by goal id, kept in versions like states.

use call_prompt::observation;
use call_prompt::prompt::Language;
use serde_json::{Map, Value, json};

use super::{
    knowledge::GoalReference,
    state::{Operation, Path},
};

/// The longest description that a goal begins with, in bytes.
const MAX_DESCRIPTION_BYTES: usize = 4 << 10;
/// The longest list of goals that a model is shown, in bytes (rule G205).
const MAX_SHOWN_BYTES: usize = 4 << 10;
/// The priority of a goal that states none.
const DEFAULT_PRIORITY: f64 = 0.5;

/// The status of a goal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GoalStatus {
    /// To be pursued later.
    Pending,
    /// To be pursued now.
    #[default]
    Active,
    /// Reached.
    Completed,
    /// Not reached, and no longer pursued.
    Failed,
    /// Abandoned.
    Dropped,
}

impl GoalStatus {
    /// Every status.
    pub const ALL: [Self; 5] = [
        Self::Pending,
        Self::Active,
        Self::Completed,
        Self::Failed,
        Self::Dropped,
    ];

    /// Returns the word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Active => "active",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Dropped => "dropped",
        }
    }

    fn is_open(self) -> bool {
        matches!(self, Self::Pending | Self::Active)
    }
}

/// A goal.
#[derive(Clone, Debug, PartialEq)]
pub struct Goal {
    /// The id.
    pub id: String,
    /// The aim; empty if it was not found.
    pub description: String,
    /// The status.
    pub status: GoalStatus,
    /// From 0 to 1.
    pub priority: f64,
    /// The origin.
    pub origin: String,
    /// The knowledge base that describes it; empty for none.
    pub kb: String,
    /// Whether the description was found.
    pub resolved: bool,
}

/// A change of a goal by an agent; a missing field stays as it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GoalChange {
    /// The aim.
    pub description: Option<String>,
    /// The status.
    pub status: Option<GoalStatus>,
    /// From 0 to 1.
    pub priority: Option<f64>,
}

/// A goal that a document assigns to an agent.
#[derive(Clone, Debug, PartialEq)]
pub struct GivenGoal {
    /// The reference in the document.
    pub reference: GoalReference,
    /// Whether it is declared by a scene, and not by the profile.
    pub is_of_scene: bool,
}

/// Returns the goals with which an agent begins: a goal of the scene replaces the profile's goal
/// with the same id, or is added.
pub fn given(profile: &[GoalReference], scene: &[GoalReference]) -> Vec<GivenGoal> {
    let given = |reference: &GoalReference, is_of_scene| GivenGoal {
        reference: reference.clone(),
        is_of_scene,
    };
    let mut goals: Vec<GivenGoal> = profile.iter().map(|goal| given(goal, false)).collect();
    for goal in scene {
        let mut known = goals.iter_mut();
        match known.find(|known| known.reference.caiu_id == goal.caiu_id) {
            Some(known) => *known = given(goal, true),
            None => goals.push(given(goal, true)),
        }
    }
    goals
}

/// Makes the first version of goals, each with its knowledge base and text if the text was found.
pub fn first(goals: &[(GivenGoal, Option<(String, String)>)]) -> Value {
    let write = |(given, found): &(GivenGoal, Option<(String, String)>)| {
        let (kb, text) = found.clone().unwrap_or_default();
        let end = text.floor_char_boundary(MAX_DESCRIPTION_BYTES);
        let goal = json!({
            "description": text[..end],
            "status": GoalStatus::Active.as_str(),
            "priority": given.reference.priority,
            "origin": if given.is_of_scene { "scene" } else { "profile" },
            "kb": kb,
            "resolved": found.is_some(),
        });
        (given.reference.caiu_id.clone(), goal)
    };
    Value::Object(goals.iter().map(write).collect())
}

/// Returns the schema that goals meet.
pub fn schema() -> Value {
    let words: Vec<&str> = GoalStatus::ALL
        .iter()
        .map(|status| status.as_str())
        .collect();
    json!({
        "type": "object",
        "maxProperties": 100,
        "additionalProperties": {
            "type": "object",
            "properties": {
                "description": {"type": "string"},
                "status": {"enum": words},
                "priority": {"type": "number", "minimum": 0, "maximum": 1},
            },
            "required": ["description"],
        },
    })
}

/// Returns the operation by which an agent changes a goal.
///
/// # Errors
/// A sentence that describes the problem with the id.
pub fn operation(goal_id: &str, change: &GoalChange) -> Result<Operation, String> {
    let pointer = json_schema::pointer::join("", goal_id);
    let mut fields = Map::new();
    if let Some(description) = &change.description {
        fields.insert("description".to_owned(), description.clone().into());
    }
    if let Some(status) = change.status {
        fields.insert("status".to_owned(), status.as_str().into());
    }
    if let Some(priority) = change.priority {
        fields.insert("priority".to_owned(), priority.into());
    }
    Ok(Operation::Merge(
        Path::parse(&pointer)?,
        Value::Object(fields),
    ))
}

/// Returns goals by falling priority.
pub fn listed(state: &Value) -> Vec<Goal> {
    let goals = state.as_object().into_iter().flatten();
    let mut goals: Vec<Goal> = goals.map(|(id, goal)| read(id, goal)).collect();
    goals.sort_by(|a, b| b.priority.total_cmp(&a.priority).then(a.id.cmp(&b.id)));
    goals
}

fn read(id: &str, goal: &Value) -> Goal {
    let text = |key: &str| goal[key].as_str().unwrap_or_default().to_owned();
    let status = goal["status"].as_str();
    let mut all = GoalStatus::ALL.into_iter();
    let origin = text("origin");
    Goal {
        id: id.to_owned(),
        description: text("description"),
        status: all
            .find(|known| Some(known.as_str()) == status)
            .unwrap_or_default(),
        priority: goal["priority"].as_f64().unwrap_or(DEFAULT_PRIORITY),
        origin: if origin.is_empty() {
            "agent".to_owned()
        } else {
            origin
        },
        kb: text("kb"),
        resolved: goal["resolved"].as_bool().unwrap_or(true),
    }
}

/// Returns goals in the form for a deliberation workflow (rule G201).
pub fn for_workflow(state: &Value) -> Vec<Value> {
    let goals = listed(state).into_iter().map(|goal| {
        json!({"goal_id": goal.id, "description": goal.description, "priority": goal.priority,
            "status": goal.status.as_str()})
    });
    goals.collect()
}

/// Words the goals that the agent pursues; none if it pursues none.
pub fn shown(state: &Value, language: Language) -> Option<String> {
    let open = listed(state)
        .into_iter()
        .filter(|goal| goal.status.is_open());
    let lines = open.map(|goal| {
        let description = match goal.description.as_str() {
            "" => String::new(),
            text => format!(": {text}"),
        };
        let (status, priority) = (goal.status.as_str(), goal.priority);
        format!("- {} ({status}, {priority}){description}", goal.id)
    });
    let lines = lines.collect::<Vec<_>>().join("\n");
    if lines.is_empty() {
        return None;
    }
    let words = match language {
        Language::En => "Your goals now, the most important first:",
        Language::Zh => "你当前的目标，最重要的在前：",
    };
    let end = lines.floor_char_boundary(MAX_SHOWN_BYTES);
    Some(format!(
        "{words}\n{}",
        observation::neutralise(&lines[..end])
    ))
}

#[cfg(test)]
mod tests {
    use json_schema::Schema;

    use super::*;
    use crate::state::{self, MAX_PRIVATE_BYTES};

    fn reference(caiu_id: &str, priority: f64) -> GoalReference {
        GoalReference {
            caiu_id: caiu_id.to_owned(),
            kb: None,
            priority,
        }
    }

    fn goals() -> Value {
        let given = given(
            &[reference("keep", 0.4), reference("guard", 0.7)],
            &[reference("warn", 0.95), reference("keep", 0.1)],
        );
        let found = |goal: GivenGoal| {
            let text = format!("Text of {}.", goal.reference.caiu_id);
            let found = (goal.reference.caiu_id != "guard").then(|| ("kb".to_owned(), text));
            (goal, found)
        };
        first(&given.into_iter().map(found).collect::<Vec<_>>())
    }

    #[test]
    fn g106_a_goal_of_the_scene_replaces_that_of_the_profile_or_is_added() {
        let listed: Vec<(String, f64, String, bool)> = listed(&goals())
            .into_iter()
            .map(|goal| (goal.id, goal.priority, goal.origin, goal.resolved))
            .collect();
        let row = |id: &str, priority, origin: &str, resolved| {
            (id.to_owned(), priority, origin.to_owned(), resolved)
        };
        assert_eq!(
            listed,
            [
                row("warn", 0.95, "scene", true),
                row("guard", 0.7, "profile", false),
                row("keep", 0.1, "scene", true)
            ]
        );
    }

    #[test]
    fn a_new_goal_needs_a_description_and_a_known_one_changes_only_what_is_given() {
        let schema = Schema::compile(&schema()).unwrap();
        let apply = |goal_id: &str, change: &GoalChange| {
            let operation = operation(goal_id, change).unwrap();
            state::change(&goals(), &[operation], Some(&schema), MAX_PRIVATE_BYTES)
        };
        let done = GoalChange {
            status: Some(GoalStatus::Completed),
            ..GoalChange::default()
        };
        let changed = apply("warn", &done).unwrap();
        assert_eq!(changed.previous.unwrap()["status"], "active");
        let warn = &listed(&changed.state)[0];
        assert_eq!(
            (warn.description.as_str(), warn.status),
            ("Text of warn.", GoalStatus::Completed)
        );
        assert!(
            !shown(&changed.state, Language::En)
                .unwrap()
                .contains("warn")
        );
        apply("a/new~goal", &done).unwrap_err();
        let new = GoalChange {
            description: Some("Sleep.".to_owned()),
            ..GoalChange::default()
        };
        let changed = apply("a/new~goal", &new).unwrap();
        let goals = listed(&changed.state);
        let goal = goals.iter().find(|goal| goal.id == "a/new~goal").unwrap();
        assert_eq!(
            (goal.status, goal.priority, goal.origin.as_str()),
            (GoalStatus::Active, 0.5, "agent")
        );
    }

    #[test]
    fn g201_goals_are_listed_by_falling_priority_for_models_and_workflows() {
        assert_eq!(
            shown(&goals(), Language::En).unwrap(),
            "Your goals now, the most important first:\n- warn (active, 0.95): Text of warn.\n\
             - guard (active, 0.7)\n- keep (active, 0.1): Text of keep."
        );
        assert_eq!(
            for_workflow(&goals())[0],
            json!({"goal_id": "warn", "description": "Text of warn.", "priority": 0.95, "status": "active"})
        );
        assert_eq!(shown(&json!({}), Language::Zh), None);
    }
}
