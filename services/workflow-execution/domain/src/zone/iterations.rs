//! The common parts of all kinds of zones: iterations with inputs and outputs.

use std::collections::BTreeMap;
use std::sync::Arc;

use call_outcome::Failure;
use serde_json::Value;

use super::super::data_flow::Values;
use super::super::plan::PlanNode;
use super::list::{List, UsedOutputs};
use super::repeat::Repeat;
use super::settings::{RESULT_STREAM, ZoneKind, ZoneSettings};

/// The iterations of one zone.
#[derive(Debug)]
pub enum Iterations {
    /// The iterations of a loop.
    Repeat(Repeat),
    /// The iterations over a list.
    List(List),
}

impl Iterations {
    /// Begins a zone on the values of its inputs.
    ///
    /// # Errors
    /// A value that the zone cannot use.
    pub fn begin(
        settings: ZoneSettings,
        planned: &PlanNode,
        inputs: &Values,
    ) -> Result<Self, Failure> {
        let shape = &planned.own_shape;
        let leads = |key: &str| shape.output(key).is_some_and(|at| planned.used[at]);
        let named = |key: &str| inputs.get(shape.input(key)?)?.clone();
        let constants = settings
            .constants
            .iter()
            .map(|slot| named(&slot.key))
            .collect();
        Ok(match settings.kind {
            ZoneKind::Loop(kind) => {
                let variables = kind.variables.iter().map(|slot| named(&slot.key)).collect();
                let seen = shape.inputs.iter().zip(inputs);
                let seen = seen.map(|(slot, value)| {
                    let value = value.as_deref().cloned().unwrap_or_default();
                    (slot.key.to_string(), value)
                });
                let seen = Value::Object(seen.collect());
                Self::Repeat(Repeat::begin(
                    kind,
                    variables,
                    constants,
                    named("count"),
                    seen,
                )?)
            }
            ZoneKind::Map(kind) => {
                let leads = UsedOutputs {
                    results: leads("results"),
                    stream: leads(RESULT_STREAM),
                };
                Self::List(List::begin(kind, constants, named("items"), leads)?)
            }
        })
    }

    /// Returns the number of the iteration that is taken next.
    pub fn index(&self) -> u64 {
        match self {
            Self::Repeat(repeat) => repeat.index(),
            Self::List(list) => list.index(),
        }
    }

    /// Restores a loop from its iterations before the process began, and returns the number of its
    /// next iteration. A list repeats its items from the first, and takes each as it comes to it.
    ///
    /// # Errors
    /// The failure of the zone.
    pub fn resume(
        &mut self,
        ended: &mut BTreeMap<u64, Result<Values, Failure>>,
        connected: &[bool],
    ) -> Result<u64, Failure> {
        match self {
            Self::Repeat(repeat) => repeat.resume(std::mem::take(ended).into_iter(), connected),
            Self::List(_) => Ok(0),
        }
    }

    /// Returns the results of a map from the item `from` on, in order.
    pub fn results(&self, from: usize) -> &[Value] {
        match self {
            Self::Repeat(_) => &[],
            Self::List(list) => list.results(from),
        }
    }

    /// Returns the most iterations in progress at once.
    pub fn concurrency(&self) -> usize {
        match self {
            Self::Repeat(_) => 1,
            Self::List(list) => list.concurrency(),
        }
    }

    /// Whether the first iteration that fails ends the zone.
    pub fn tolerates_none(&self) -> bool {
        match self {
            Self::Repeat(_) => true,
            Self::List(list) => list.tolerates_none(),
        }
    }

    /// Returns the inputs of the next iteration; none if there is no further one. A loop's next
    /// iteration needs the outputs of the present one, so these have to be taken first.
    ///
    /// # Errors
    /// The failure of the zone.
    pub fn next_values(&mut self) -> Result<Option<Values>, Failure> {
        match self {
            Self::Repeat(repeat) => repeat.next_values(),
            Self::List(list) => Ok(list.next_values()),
        }
    }

    /// Takes the result of the next iteration in order. `connected` states for each output whether
    /// it has a source.
    ///
    /// # Errors
    /// The failure of the zone.
    pub fn take(
        &mut self,
        gave: Result<Values, Failure>,
        connected: &[bool],
    ) -> Result<(), Failure> {
        match self {
            Self::Repeat(repeat) => repeat.take(gave?, connected),
            Self::List(list) => list.take(gave),
        }
    }

    /// Returns the outputs of the zone, when no iteration is left.
    pub fn outputs(&mut self) -> Vec<Arc<Value>> {
        match self {
            Self::Repeat(repeat) => repeat.outputs(),
            Self::List(list) => list.outputs(),
        }
    }
}
