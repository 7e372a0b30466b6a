//! The body of a zone, on the values that stay the same for each iteration.

use std::sync::Arc;

use call_outcome::{Category, Failure};

use super::super::data_flow::Values;
use super::super::engine::{Command, Engine, Outcome};
use super::super::plan::{Edges, Plan, PlanNode, Source};
use super::iterations::Iterations;
use super::settings::ZoneSettings;

/// The body of a zone in progress.
#[derive(Clone, Debug)]
pub struct Body {
    plan: Arc<Plan>,
    /// Whether each output of an iteration has a source.
    connected: Arc<[bool]>,
    /// The values from around the zone.
    outer: Values,
    /// The seed of the random numbers of its nodes.
    seed: u64,
}

impl Body {
    /// Begins a zone on the values of its inputs.
    ///
    /// # Errors
    /// A value that the zone cannot use.
    pub fn begin(
        planned: &PlanNode,
        seed: u64,
        inputs: &Values,
    ) -> Result<(Self, Iterations), Failure> {
        let full_type = &planned.definition().full_type;
        let settings = ZoneSettings::read(full_type, &planned.config).ok();
        let (Some(plan), Some(settings)) = (planned.body.clone(), settings) else {
            let message = format!("zone `{}` was not compiled", planned.id);
            return Err(Failure::new(Category::Internal, "no_body", message));
        };
        let own = settings.shape().inputs.len();
        let iterations = Iterations::begin(settings, planned, inputs)?;
        let connected = plan.outputs.iter();
        let body = Self {
            connected: connected
                .map(|source| is_connected(&plan, source))
                .collect(),
            outer: inputs.get(own..).unwrap_or_default().into(),
            seed,
            plan,
        };
        Ok((body, iterations))
    }

    /// Returns the plan of each iteration.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Returns for each output of an iteration whether it has a source.
    pub fn connected(&self) -> &[bool] {
        &self.connected
    }

    /// Begins an iteration on its own values, and commands its first nodes.
    pub fn engine(&self, index: u64, mut values: Values, commands: &mut Vec<Command>) -> Engine {
        values.extend(self.outer.iter().cloned());
        let engine = Engine::start(
            Arc::clone(&self.plan),
            values.into_iter().collect(),
            commands,
        );
        engine.with_seed(&format!("{}#{index}", self.seed))
    }

    /// Returns the outputs of an iteration that has ended.
    ///
    /// # Errors
    /// The failure of the iteration.
    pub fn gave(engine: &Engine, index: u64) -> Result<Values, Failure> {
        let Some(Outcome::Failed { first, failure, .. }) = engine.outcome() else {
            return Ok(engine.interface_values());
        };
        let node = engine.node(first);
        let full_type = &node.definition().full_type;
        let failure = failure.as_ref().clone().in_node(&node.id, full_type);
        Err(failure.detail("iteration", index))
    }
}

/// Whether an output of an iteration has an edge or a preset.
fn is_connected(plan: &Plan, source: &Source) -> bool {
    let Source::Output { node, slot } = source else {
        return false;
    };
    let exit = plan.nodes.get(*node as usize);
    exit.and_then(|exit| exit.inputs.get(*slot as usize))
        .is_some_and(|input| !matches!(input.edges, Edges::None) || input.fallback.is_some())
}
