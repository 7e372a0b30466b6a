//! Running single nodes on the state of an engine, and whole plans of pure nodes.

use call_outcome::{Category, Failure};
use std::sync::Arc;

use serde_json::{Map, Value};

use super::bypass::pass_by;
use super::data_flow::{Inputs, Values};
use super::engine::{Command, Engine, Event, Outcome};
use super::interface::RunInputs;
use super::limits::{MAX_RUN_BYTES, MAX_VALUE_BYTES};
use super::node_definition::Bypass;
use super::node_type::{NodeCall, Step};
use super::plan::{NodeIndex, Plan, PlanNode};
use super::size::weight;

/// Runs a node, or its first half, on the inputs that the engine has for it. A panic of the node is
/// its failure, and affects no other node.
///
/// # Errors
/// The failure of the node.
pub fn execute(engine: &Engine, node: NodeIndex) -> Result<Step, Failure> {
    let mut inputs = Inputs::new();
    engine.gather_inputs(node, &mut inputs)?;
    let planned = engine.node(node);
    contain(planned, || {
        if planned.bypassed {
            return Ok(match planned.definition().bypass {
                Bypass::Pass => Step::Done(pass_by(planned.call(&inputs))),
                Bypass::Mute => {
                    Step::Branch(Values::from_elem(None, planned.own_shape.outputs.len()))
                }
            });
        }
        planned.node.run(NodeCall {
            run_seed: engine.seed(),
            ..planned.call(&inputs)
        })
    })
}

/// Runs a piece of a node so that its panic is a failure of the node.
///
/// # Errors
/// The failure of the node.
pub fn contain<T>(
    planned: &PlanNode,
    work: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or_else(|_| {
        let full_type = &planned.definition().full_type;
        let message = format!(
            "internal error: node `{}` ({full_type}) panicked; please report this",
            planned.id
        );
        Err(Failure::new(Category::Internal, "node_panicked", message))
    })
}

/// Checks the outputs of a node before they become an event: one for each output, not too large.
///
/// # Errors
/// Why the node has failed after all.
pub fn check_outputs(engine: &Engine, node: NodeIndex, outputs: Values) -> Result<Values, Failure> {
    let planned = engine.node(node);
    let outputs = match &planned.execution {
        Some(execution) => execution.succeeded(outputs),
        None => outputs,
    };
    let wanted = planned.shape.outputs.len();
    if outputs.len() != wanted {
        let message = format!(
            "node `{}` gave {} outputs instead of {wanted}",
            planned.id,
            outputs.len()
        );
        return Err(Failure::new(Category::Internal, "wrong_outputs", message));
    }
    let bytes: usize = outputs.iter().flatten().map(|value| weight(value)).sum();
    if bytes > MAX_VALUE_BYTES {
        let message = format!("the outputs have {bytes} bytes; at most {MAX_VALUE_BYTES} are kept");
        return Err(Failure::limit("value_too_large", message));
    }
    if !engine.has_room_for(bytes) {
        let message =
            format!("the values of this run have more than {MAX_RUN_BYTES} bytes together");
        return Err(Failure::limit("run_too_large", message));
    }
    Ok(outputs)
}

/// Runs a plan of pure nodes to its end, in memory, on the calling thread.
///
/// # Errors
/// The id of the node that is not pure.
pub fn run_pure(plan: Arc<Plan>, inputs: RunInputs) -> Result<Outcome, String> {
    let mut commands = Vec::new();
    let mut engine = Engine::start(plan, inputs, &mut commands);
    while let Some(command) = commands.pop() {
        let event = match command {
            Command::Skip { node, .. } => Event::Skipped(node),
            Command::Execute(node) => match execute(&engine, node) {
                Ok(Step::Done(outputs)) => finished(&engine, node, Ok(all_present(outputs))),
                Ok(Step::Branch(outputs)) => finished(&engine, node, Ok(outputs)),
                Ok(Step::Effect(_) | Step::Wait(_)) => {
                    return Err(engine.node(node).id.to_string());
                }
                Err(failure) => finished(&engine, node, Err(failure)),
            },
        };
        engine
            .apply(event, &mut commands)
            .expect("every event answers a command");
    }
    Ok(engine.outcome().expect("an acyclic plan comes to its end"))
}

/// Makes outputs of values of which none is absent.
pub fn all_present(values: Vec<Arc<Value>>) -> Values {
    let mut all = Values::with_capacity(values.len());
    for value in values {
        all.push(Some(value));
    }
    all
}

/// Makes an event of what a node gave.
pub fn finished(engine: &Engine, node: NodeIndex, gave: Result<Values, Failure>) -> Event {
    finished_after(engine, node, gave, 1, &Map::new())
}

/// Makes an event of the result of a node's last attempt. A failure that the node's settings handle
/// becomes outputs (rule W23); `so_far` are its streaming outputs until then, by key.
pub fn finished_after(
    engine: &Engine,
    node: NodeIndex,
    gave: Result<Values, Failure>,
    attempts: u32,
    so_far: &Map<String, Value>,
) -> Event {
    let failure = match gave.and_then(|outputs| check_outputs(engine, node, outputs)) {
        Ok(outputs) => return Event::Succeeded(node, outputs),
        Err(failure) => failure,
    };
    let planned = engine.node(node);
    let handled = planned.execution.as_ref().and_then(|execution| {
        execution.handled(&planned.shape, &planned.id, &failure, attempts, so_far)
    });
    let failure = Arc::new(failure);
    match handled {
        Some(outputs) => Event::Handled(node, outputs, failure),
        None => Event::Failed(node, failure),
    }
}
