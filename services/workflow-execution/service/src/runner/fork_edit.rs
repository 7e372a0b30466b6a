//! The edits of a forked run.

use contracts::tavern::workflow::v1::ForkEdit;
use grpc_kit::Failure;
use serde_json::{Map, Value};

use workflow_domain::bundle::Bundle;
use workflow_domain::load::load_with_source;
use workflow_domain::plan::{Edges, Plan, PlanNode};
use workflow_runner::wire;

use super::target::Target;

/// Applies edits to a target and to its inputs, and returns the new target. The problems of the
/// edits are added to `problems`.
pub(super) fn apply(
    target: &Target,
    plan: &Plan,
    given: &mut Map<String, Value>,
    edits: &[ForkEdit],
    problems: &mut Failure,
) -> Target {
    let mut edited = Edited::of(target);
    for (at, edit) in edits.iter().enumerate() {
        let value = match wire::read_value(&edit.value_json) {
            Ok(value) => value,
            Err(problem) => {
                problems.add_violation(format!("edits[{at}].value_json"), problem);
                continue;
            }
        };
        let parts: Option<Vec<String>> = edit.path.strip_prefix('/').map(|path| {
            let part = |part: &str| part.replace("~1", "/").replace("~0", "~");
            path.split('/').map(part).collect()
        });
        let parts = parts.unwrap_or_default();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let applied = match parts[..] {
            ["inputs", key] => {
                let known = plan.interface_inputs.iter().any(|slot| &*slot.key == key);
                given.insert(key.to_owned(), value);
                known.then_some(()).ok_or("the run has no such input")
            }
            ["nodes", id, "inputs", key] => check_input(plan, id, key)
                .and_then(|()| edited.set(id, EditTarget::Presets, key, value)),
            ["nodes", id, "config", key] => {
                check_node(plan, id).and_then(|_| edited.set(id, EditTarget::Config, key, value))
            }
            _ => Err("give `/inputs/KEY`, `/nodes/ID/inputs/KEY` or `/nodes/ID/config/KEY`"),
        };
        if let Err(problem) = applied {
            problems.add_violation(format!("edits[{at}].path"), problem);
        }
    }
    edited.into_target(target)
}

fn check_node<'a>(plan: &'a Plan, id: &str) -> Result<&'a PlanNode, &'static str> {
    let node = plan.by_id.get(id);
    node.map(|node| &plan.nodes[*node as usize])
        .ok_or("the definition has no such node outside groups and zones")
}

fn check_input(plan: &Plan, id: &str, key: &str) -> Result<(), &'static str> {
    let node = check_node(plan, id)?;
    let input = node.shape.input(key).ok_or("the node has no such input")?;
    match node.inputs[input].edges {
        Edges::None => Ok(()),
        _ => Err("an edge leads to the input; edit where it comes from"),
    }
}

enum EditTarget {
    Presets,
    Config,
}

/// A definition that is being edited.
struct Edited {
    /// The definition; none where there is none to edit.
    text: Option<Value>,
    presets_key: &'static str,
    /// The place of each node in the definition.
    pointers: Vec<(String, String)>,
    changed: bool,
}

impl Edited {
    fn of(target: &Target) -> Self {
        let mut edited = Self {
            text: None,
            presets_key: "",
            pointers: Vec::new(),
            changed: false,
        };
        if let Target::Definition(bundle) = target {
            let (loaded, source) = load_with_source(&bundle.root);
            if let Some(workflow) = loaded.workflow {
                edited.presets_key = workflow.form.presets_key();
                let pointers = workflow.nodes.into_iter();
                edited.pointers = pointers.map(|node| (node.id, node.pointer)).collect();
                edited.text = Some(source);
            }
        }
        edited
    }

    fn set(
        &mut self,
        id: &str,
        place: EditTarget,
        key: &str,
        value: Value,
    ) -> Result<(), &'static str> {
        let missing = "the definition has no such node outside groups and zones";
        let pointer = self.pointers.iter().find(|(known, _)| known == id);
        let (_, pointer) = pointer.ok_or(missing)?;
        let node = self
            .text
            .as_mut()
            .and_then(|text| text.pointer_mut(pointer));
        let node = node.and_then(Value::as_object_mut).ok_or(missing)?;
        let values = node.entry(match place {
            EditTarget::Presets => self.presets_key,
            EditTarget::Config => "configValues",
        });
        let values = values.or_insert_with(|| Value::Object(Map::new()));
        values
            .as_object_mut()
            .ok_or(missing)?
            .insert(key.to_owned(), value);
        self.changed = true;
        Ok(())
    }

    fn into_target(self, target: &Target) -> Target {
        match (target, self.text.filter(|_| self.changed)) {
            (Target::Definition(bundle), Some(text)) => Target::Definition(Bundle {
                root: text.to_string().into(),
                ..bundle.clone()
            }),
            _ => target.clone(),
        }
    }
}
