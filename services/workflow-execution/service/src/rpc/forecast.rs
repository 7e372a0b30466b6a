//! Forecasts on the wire.

use std::collections::HashMap;
use std::sync::Arc;

use contracts::tavern::common::v1::NodeCache;
use contracts::tavern::workflow::v1 as proto;
use grpc_kit::{CallContext, Failure};

use crate::error::invalid_fields;
use crate::runner::Inner;
use workflow_domain::forecast::{Forecast, ForecastNode};
use workflow_domain::interface::{bind, read_inputs};
use workflow_domain::node_definition::NodeEffects;
use workflow_domain::plan::Plan;

/// Forecasts the runs of a plan, with the results that they would reuse if their inputs are given.
///
/// # Errors
/// INVALID_FIELDS for inputs that the plan does not have.
pub(super) async fn of(
    inner: &Inner,
    context: &CallContext,
    plan: &Arc<Plan>,
    request: &proto::ValidateWorkflowRequest,
) -> Result<proto::WorkflowForecast, Failure> {
    let mut reused = HashMap::new();
    if !request.inputs_json.is_empty() {
        let given = read_inputs(&request.inputs_json);
        let inputs = given.and_then(|given| bind(&plan.interface_inputs, &given));
        let inputs = inputs.map_err(|wrong| invalid_fields("inputs_json", &wrong))?;
        let (plan, now) = (Arc::clone(plan), inner.clock.now());
        let predicted = inner
            .runner
            .predict(context, plan, inputs, &request.workflow_id, now);
        reused = predicted.await;
    }
    let forecast = Forecast::of(plan);
    let nodes = forecast.nodes.into_iter();
    Ok(proto::WorkflowForecast {
        nodes: nodes
            .map(|node| {
                let cache = reused.remove(&node.path);
                node_to_proto(node, cache)
            })
            .collect(),
        max_executions: forecast.max_executions,
        max_effects: forecast.max_effects,
    })
}

fn node_to_proto(node: ForecastNode, cache: Option<NodeCache>) -> proto::ForecastNode {
    proto::ForecastNode {
        node_id: node.path,
        node_type: node.full_type.to_owned(),
        pure: node.effects == NodeEffects::Pure,
        read_only: node.effects != NodeEffects::External,
        bypassed: node.bypassed,
        uses: node.uses.unwrap_or_default(),
        max_executions: node.max_executions,
        cache,
    }
}
