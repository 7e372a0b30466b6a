//! Compiles what zones repeat.

use std::sync::Arc;

use call_outcome::Violation;

use super::super::node_definition::NodeEffects;
use super::super::node_type::Catalogue;
use super::super::plan::Plan;
use super::super::violation::Violations;
use super::super::zone::settings::{ZoneSettings, is_zone};
use super::super::zone::split::Bodies;
use super::{Compiler, compile_with};

impl<'a> Compiler<'a> {
    /// Compiles the body of each zone. Everything in it has to run inline.
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
                    self.refuse_effects(body, &plan);
                    self.bodies.insert(&zone.id, Arc::new(plan));
                }
            }
        }
    }

    fn refuse_effects(&mut self, body: &super::Workflow, plan: &Plan) {
        for (entry, planned) in body.nodes.iter().zip(&plan.nodes) {
            if planned.definition().effects != NodeEffects::Pure {
                let message = format!(
                    "node `{}` stands in a zone; nodes that need another service run outside zones",
                    entry.id
                );
                let violation = Violation::new(entry.pointer.clone(), "effects_in_zone", message);
                self.violations.add(violation);
            }
        }
    }
}
