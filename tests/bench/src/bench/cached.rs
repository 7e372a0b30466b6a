//! Nodes whose results are reused, compared with the same nodes without a cache.
//!
//! A chain of 1 000 additions runs in memory; each looks for its result first and finds it.

use contracts::tavern::run::v1::run_service_client::RunServiceClient;
use contracts::tavern::workflow::v1::workflow_service_client::WorkflowServiceClient;
use serde_json::{Value, json};

use crate::harness::Effort;
use crate::series::Series;
use crate::support::in_process::InProcess;
use crate::table::Figure;

use super::workflow::run_to_the_end;

const LENGTH: usize = 1_000;

pub(super) async fn run(effort: &Effort) -> anyhow::Result<Vec<Figure>> {
    let tavern = InProcess::start(effort).await?;
    let mut client = WorkflowServiceClient::new(tavern.transport().outermost());
    let mut runs = RunServiceClient::new(tavern.transport().outermost());
    let cache = json!({"cache": {"scope": "tenant"}});
    let (reusing, computing) = (chain(&cache), chain(&json!({})));
    let (mut reused, mut computed) = (Vec::new(), Vec::new());
    for round in 0..=effort.times(50) {
        let reuse = run_to_the_end(&mut client, &mut runs, &reusing).await?;
        let compute = run_to_the_end(&mut client, &mut runs, &computing).await?;
        if round > 0 {
            reused.push(reuse);
            computed.push(compute);
        }
    }
    tavern.stop().await;
    let per_node = |values| Series::seconds(values).divided_by(LENGTH as f64);
    Ok(vec![
        Figure::new("cache hit, per node", per_node(reused))
            .floor("the node without a cache", per_node(computed))
            .goal(50e-6),
    ])
}

/// Additions, each of which needs the sum of its predecessor.
fn chain(execution: &Value) -> String {
    let node = |at: usize| {
        json!({
            "id": format!("n{at}"),
            "type": "core:MathOperation",
            "configValues": {"operationMode": "add", "execution": execution},
            "inputValues": {"a": 0, "b": 1},
        })
    };
    let edge = |at: usize| {
        json!({
            "source": format!("n{}", at - 1), "sourceHandle": "result",
            "target": format!("n{at}"), "targetHandle": "a",
        })
    };
    let nodes: Vec<Value> = (0..LENGTH).map(node).collect();
    let edges: Vec<Value> = (1..LENGTH).map(edge).collect();
    json!({"nodes": nodes, "edges": edges}).to_string()
}
