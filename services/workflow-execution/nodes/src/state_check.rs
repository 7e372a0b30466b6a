//! `core:StateCheck`: checks a value against a schema and a condition.

use call_outcome::{Failure, Violation};
use std::sync::Arc;

use json_schema::Schema;
use serde_json::{Value, json};

use workflow_domain::data_flow::{DataFlow, NULL};
use workflow_domain::node_definition::{ConfigSlot, FurtherSlots, NodeDefinition};
use workflow_domain::node_type::{Node, NodeCall, ShapeContext, Step};
use workflow_domain::slot::{Shape, Slot};

use super::condition::{check_expression, holds};
use super::execute_tool::open_shape;

const VALUE: usize = 0;
const SCHEMA: &str = "schema";
const CONDITION: &str = "condition";

/// Outputs whether a state meets the schema and the condition; a state that does not meet them does
/// not fail the node.
#[derive(Debug)]
pub struct StateCheck;

impl Node for StateCheck {
    fn definition(&self) -> NodeDefinition {
        let inputs = vec![Slot::new("value", DataFlow::Wildcard, "The state.").required()];
        let outputs = vec![
            Slot::new(
                "ok",
                DataFlow::Boolean,
                "Whether the state is as it should be.",
            )
            .excluded_from_bypass(),
            Slot::new(
                "violations",
                DataFlow::Array,
                "What is not: objects with path, code and message.",
            )
            .excluded_from_bypass(),
        ];
        let condition = "A condition in CEL on `inputs`, evaluated if the schema holds. Missing is no \
                         condition.";
        NodeDefinition {
            description: "Checks a value against a JSON Schema and a condition, and lists every \
                          violation."
                .into(),
            category: "control".into(),
            config: vec![
                ConfigSlot::new(
                    SCHEMA,
                    DataFlow::Object,
                    "The JSON Schema of the value. Missing accepts every value.",
                ),
                ConfigSlot::new(CONDITION, DataFlow::String, condition),
            ],
            further_slots: FurtherSlots::NamedInputs,
            ..NodeDefinition::new(
                "core:StateCheck",
                "State check",
                Shape::new(inputs, outputs),
            )
        }
    }

    fn shape(&self, context: &ShapeContext<'_>) -> Result<Shape, Vec<Violation>> {
        let mut violations = check_expression(context.config, CONDITION, false)
            .err()
            .unwrap_or_default();
        let schema = context
            .config
            .get(SCHEMA)
            .filter(|schema| !schema.is_null());
        if let Some(errors) = schema.and_then(|schema| Schema::compile(schema).err()) {
            violations.push(Violation::new(
                format!("/configValues/{SCHEMA}"),
                "invalid_schema",
                errors.to_string(),
            ));
        }
        if violations.is_empty() {
            Ok(open_shape(&context.definition.shape, context))
        } else {
            Err(violations)
        }
    }

    fn run(&self, call: NodeCall<'_>) -> Result<Step, Failure> {
        let value = call.value(VALUE).unwrap_or(&NULL);
        let mut violations: Vec<Value> = Vec::new();
        let schema = call.config.get(SCHEMA).filter(|schema| !schema.is_null());
        if let Some(schema) = schema {
            let schema = Schema::compile(schema)
                .map_err(|errors| Failure::invalid("invalid_schema", errors.to_string()))?;
            violations.extend(schema.validate(value).iter().map(|violation| {
                json!({
                    "path": violation.pointer,
                    "code": violation.code.as_str(),
                    "message": violation.message,
                })
            }));
        }
        let conditional = call.config.get(CONDITION).is_some_and(Value::is_string);
        if violations.is_empty() && conditional && !holds(call, CONDITION)? {
            let message = "the condition does not hold";
            violations.push(json!({"path": "", "code": "condition_not_met", "message": message}));
        }
        let ok = violations.is_empty();
        Ok(Step::Done(vec![
            Arc::new(Value::Bool(ok)),
            Arc::new(Value::Array(violations)),
        ]))
    }
}
