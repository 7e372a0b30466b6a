//! Forecasts on the wire.

use contracts::tavern::workflow::v1 as proto;

use crate::domain::forecast::{Forecast, ForecastNode};
use crate::domain::node_definition::NodeEffects;

/// Writes a forecast.
pub(super) fn to_proto(forecast: Forecast) -> proto::WorkflowForecast {
    proto::WorkflowForecast {
        nodes: forecast.nodes.into_iter().map(node_to_proto).collect(),
        max_executions: forecast.max_executions,
        max_effects: forecast.max_effects,
    }
}

fn node_to_proto(node: ForecastNode) -> proto::ForecastNode {
    proto::ForecastNode {
        node_id: node.path,
        node_type: node.full_type.to_owned(),
        pure: node.effects == NodeEffects::Pure,
        read_only: node.effects != NodeEffects::External,
        bypassed: node.bypassed,
        uses: node.uses.unwrap_or_default(),
        max_executions: node.max_executions,
    }
}
