//! `core:Script`: runs a script in the sandbox.

use call_outcome::{Failure, Violation};
use std::sync::Arc;

use serde_json::{Value, json};

use json_schema::pointer::join;
use workflow_domain::data_flow::DataFlow;
use workflow_domain::node_definition::{
    ConfigSlot, FurtherSlots, NodeDefinition, NodeEffects, Reuse,
};
use workflow_domain::node_type::{Effect, Node, NodeCall, Settled, ShapeContext, Step};
use workflow_domain::slot::{Shape, Slot};

use super::execute_tool::{combine, open_shape};
use super::yields;

const LANGUAGE: usize = 0;
const CODE: usize = 1;
const INPUTS: usize = 2;

/// The setting of the script's time limit.
const TIMEOUT_SECONDS: &str = "timeoutSeconds";

/// The longest time limit that the setting accepts; the sandbox may allow less.
const MAX_TIMEOUT_SECONDS: f64 = 600.0;

/// Runs a script. It reads its inputs as one JSON object from the file that the environment
/// variable `TAVERN_INPUT_PATH` names, and writes one JSON value to the descriptor that
/// `TAVERN_RESULT_FD` names.
#[derive(Debug)]
pub struct Script;

impl Node for Script {
    fn definition(&self) -> NodeDefinition {
        let code = "The script. It reads the JSON file that TAVERN_INPUT_PATH names and writes its \
                    result as JSON to file descriptor 3.";
        let values = "What the script reads, by name. Further inputs that the workflow connects or \
                      presets are added under their names.";
        let inputs = vec![
            Slot::new("language", DataFlow::String, "`python3`, `node` or `bash`.")
                .default(json!("python3"))
                .suggest(["python3", "node", "bash"])
                .excluded_from_bypass(),
            Slot::new("code", DataFlow::String, code)
                .required()
                .category("Code")
                .excluded_from_bypass(),
            Slot::new("inputs", DataFlow::Object, values),
        ];
        let outputs = vec![
            Slot::new(
                "result",
                DataFlow::Wildcard,
                "What the script wrote to its result channel; null if nothing.",
            ),
            Slot::new(
                "stdout",
                DataFlow::String,
                "What it wrote to standard output.",
            )
            .stream()
            .excluded_from_bypass(),
            Slot::new(
                "stderr",
                DataFlow::String,
                "What it wrote to standard error.",
            )
            .excluded_from_bypass(),
        ];
        let yielded = "The type of the values that the script yields, one by one, each as a line of JSON on \
                      standard output. With it the output `values`, a stream of them, stands in the place \
                      of `stdout`. Missing takes standard output for text.";
        let timeout = "How many seconds the script may run; at most what the sandbox allows. Missing takes the \
                       sandbox's default.";
        let shape = Shape::new(inputs, outputs);
        NodeDefinition {
            description: "Runs a script in the sandbox, without network and without any effect outside. \
                          A script that ends with a code other than 0 fails the node. The setting \
                          `timeoutSeconds` bounds its time; with `yields` its lines are a stream of values.".into(),
            category: "tools".into(),
            config: vec![
                ConfigSlot {
                    bounds: Some((0.0, MAX_TIMEOUT_SECONDS)),
                    ..ConfigSlot::new(TIMEOUT_SECONDS, DataFlow::Float, timeout)
                },
                yields::setting(yielded),
            ],
            further_slots: FurtherSlots::NamedInputs,
            effects: NodeEffects::ReadOnly,
            reuse: Reuse::Reads,
            ..NodeDefinition::new("core:Script", "Script", shape)
        }
    }

    fn shape(&self, context: &ShapeContext<'_>) -> Result<Shape, Vec<Violation>> {
        if let Some(setting) = context
            .config
            .get(TIMEOUT_SECONDS)
            .filter(|value| !value.is_null())
        {
            let seconds = setting.as_f64().unwrap_or(0.0);
            if seconds <= 0.0 || seconds > MAX_TIMEOUT_SECONDS {
                let expected =
                    format!("a number of seconds above 0, at most {MAX_TIMEOUT_SECONDS}");
                let pointer = join("/configValues", TIMEOUT_SECONDS);
                let violation =
                    Violation::new(pointer, "out_of_range", format!("expected {expected}"));
                return Err(vec![violation.found(expected, &setting.to_string())]);
            }
        }
        let mut shape = open_shape(&context.definition.shape, context);
        if let Some(yielded) = yields::yielded(context.config)? {
            let outputs = shape.outputs.iter().map(|slot| match &*slot.key {
                "stdout" => yields::slot(yielded),
                _ => slot.clone(),
            });
            shape.outputs = outputs.collect();
        }
        Ok(shape)
    }

    fn run(&self, call: NodeCall<'_>) -> Result<Step, Failure> {
        let seconds = call.config.get(TIMEOUT_SECONDS).and_then(Value::as_f64);
        Ok(Step::Effect(Effect::RunScript {
            language: call.text(LANGUAGE).unwrap_or("python3").to_owned(),
            code: call.text(CODE).unwrap_or("").to_owned(),
            input: Value::Object(combine(call, INPUTS, INPUTS + 1)),
            wall_millis: seconds.map(|seconds| (seconds * 1_000.0).ceil() as u64),
            yields: yields::yielded(call.config).unwrap_or_default(),
        }))
    }

    fn settle(&self, _call: NodeCall<'_>, settled: Settled) -> Result<Vec<Arc<Value>>, Failure> {
        match settled {
            Settled::Script {
                result,
                written,
                stderr,
            } => Ok(vec![
                Arc::new(result),
                Arc::new(written),
                Arc::new(json!(stderr)),
            ]),
            Settled::ToolFailed { failure, .. } => Err(failure),
            _ => Err(super::wrong_effect(&self.definition())),
        }
    }
}
