//! The needed iterations of zones in progress.

use std::collections::{BTreeMap, BTreeSet};

use contracts::tavern::common::v1::IterationFinished;
use contracts::tavern::common::v1::RunEvent;
use contracts::tavern::common::v1::run_event::Kind;
use serde_json::{Map, Value};

use workflow_domain::plan::{Plan, PlanNode};
use workflow_domain::zone::settings::{ZoneKind, ZoneSettings};

use super::Ends;

type Iterations<'e> = BTreeMap<u64, (u64, &'e IterationFinished)>;

/// Returns the ends of needed iterations, of all zones in progress.
pub(super) fn last_iterations(plan: &Plan, own: &[&RunEvent], ends: &Ends) -> Vec<u64> {
    let mut zones: BTreeMap<&str, Iterations> = BTreeMap::new();
    for event in own {
        if let Some(Kind::IterationFinished(ended)) = &event.kind
            && !ends.is_over(&ended.node_id)
        {
            let iterations = zones.entry(&ended.node_id).or_default();
            iterations.insert(ended.index, (event.sequence, ended));
        }
    }
    let mut needed = Vec::new();
    for (path, iterations) in zones {
        match variables(plan, path) {
            Some(variables) => needed.extend(last_values(variables, &iterations)),
            None => needed.extend(iterations.values().map(|(sequence, _)| *sequence)),
        }
    }
    needed
}

/// Returns the names of the variables of a loop that collects nothing; none for any other zone.
fn variables(plan: &Plan, path: &str) -> Option<BTreeSet<String>> {
    let zone = zone_at(plan, path)?;
    let settings = ZoneSettings::read(&zone.definition().full_type, &zone.config).ok()?;
    match settings.kind {
        ZoneKind::Loop(settings) if settings.collect.is_empty() => {
            let names = settings.variables.iter();
            Some(names.map(|slot| slot.key.to_string()).collect())
        }
        _ => None,
    }
}

/// Returns the zone with a path such as `map#2/loop`.
fn zone_at<'p>(plan: &'p Plan, path: &str) -> Option<&'p PlanNode> {
    let node = |id: &str| Some(&plan.nodes[*plan.by_id.get(id)? as usize]);
    match path.split_once('#') {
        None => node(path),
        Some((zone, rest)) => {
            let (_, inside) = rest.split_once('/')?;
            zone_at(node(zone)?.body.as_ref()?, inside)
        }
    }
}

/// Returns the last iteration, and for each variable the last iteration that set it.
fn last_values(mut missing: BTreeSet<String>, iterations: &Iterations) -> Vec<u64> {
    let mut needed = Vec::new();
    for (at, (sequence, ended)) in iterations.values().rev().enumerate() {
        if at > 0 && missing.is_empty() {
            break;
        }
        let gave: Map<String, Value> =
            serde_json::from_str(&ended.outputs_json).unwrap_or_default();
        let before = missing.len();
        missing.retain(|key| !gave.contains_key(key));
        if at == 0 || missing.len() < before {
            needed.push(*sequence);
        }
    }
    needed
}
