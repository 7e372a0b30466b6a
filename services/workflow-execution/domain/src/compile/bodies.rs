//! Compiles the bodies of zones.

use std::sync::Arc;

use call_outcome::Violation;

use super::super::execution::EXECUTION;
use super::super::node_type::Catalogue;
use super::super::violation::Violations;
use super::super::zone::settings::{ZoneSettings, is_zone};
use super::super::zone::split::Bodies;
use super::{Compiler, compile_with};

impl<'a> Compiler<'a> {
    /// Compiles the body of each zone.
    pub(super) fn compile_bodies(&mut self, bodies: &'a Bodies, catalogue: &Catalogue) {
        let workflow = self.workflow;
        for zone in workflow
            .nodes
            .iter()
            .filter(|node| is_zone(&node.full_type))
        {
            let Some(body) = bodies.get(&zone.id) else {
                // Settings that cannot be read are reported with the node.
                if ZoneSettings::read(&zone.full_type, &zone.config).is_ok() {
                    let message = "a zone runs only as part of a workflow, with nodes inside it";
                    let violation = Violation::new(zone.pointer.clone(), "zone_boundary", message);
                    self.violations.add(violation);
                }
                continue;
            };
            match compile_with(body, bodies, catalogue, Violations::default()) {
                Err(violations) => self.violations.extend(violations),
                Ok(plan) => {
                    if plan.has_effects {
                        self.refuse_retry(zone);
                    }
                    self.bodies.insert(&zone.id, Arc::new(plan));
                }
            }
        }
    }

    /// Refuses attempts of a zone whose nodes have effects: each node states its own retries (rule
    /// W13 differs).
    fn refuse_retry(&mut self, zone: &super::NodeEntry) {
        let attempts = zone
            .config
            .get(EXECUTION)
            .and_then(|execution| execution.get("retry"));
        if attempts.is_some_and(|retry| !retry.is_null()) {
            let message = "the nodes of this zone have effects, and a repeated zone would repeat them all; \
                           set `retry` on the nodes inside";
            let place = format!("{}/configValues/{EXECUTION}/retry", zone.pointer);
            self.violations
                .add(Violation::new(place, "retry_of_zone", message));
        }
    }
}
