//! The target of a run, and its stored form for a restart.

use call_outcome::Violation;
use std::sync::Arc;

use contracts::tavern::common::v1 as common;
use core_types::Tenant;
use run_log::Hash;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::library::Library;
use workflow_domain::bundle::{Bundle, Children};
use workflow_domain::compile::compile;
use workflow_domain::interface::{RunInputs, bind};
use workflow_domain::node_type::{Catalogue, ShapeContext};
use workflow_domain::plan::Plan;
use workflow_domain::plugin_node::{
    PLUGIN_MISSING, lack_plugins_only, missing, plugin_of, with_plugins,
};
use workflow_domain::slot::Shape;
use workflow_domain::workflow::Workflow;

/// The target of a run.
#[derive(Clone, Debug)]
pub(super) enum Target {
    /// A definition.
    Definition(Bundle),
    /// A single node.
    Node(Node),
}

/// A single node that is run by itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Node {
    /// The full type.
    pub(super) full_type: String,
    /// The settings.
    pub(super) config: Map<String, Value>,
    /// The node types of plugins, as [`Bundle::node_types`]: its own, if it is of one.
    #[serde(default)]
    pub(super) node_types: Arc<Children>,
}

/// The data that are stored with a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Stored {
    /// The digest of a stored definition.
    Definition(String),
    /// The digest of a definition that is stored with the workflows that it refers to.
    Bundle(String),
    /// A single node.
    Node(Node),
}

/// The problems of a target or of the inputs for it.
#[derive(Debug)]
pub(super) enum TargetError {
    /// The definition, or the node's type and settings.
    Workflow(Vec<Violation>),
    /// The inputs.
    Inputs(Vec<Violation>),
}

impl Target {
    /// Returns the node types of plugins with which it is planned.
    pub(super) fn node_types(&self) -> &Arc<Children> {
        match self {
            Target::Definition(bundle) => &bundle.node_types,
            Target::Node(node) => &node.node_types,
        }
    }

    /// Compiles the target for a tenant and matches inputs with its interface.
    pub(super) async fn plan(
        &self,
        library: &Library,
        tenant: Tenant,
        given: Map<String, Value>,
    ) -> Result<(Arc<Plan>, RunInputs), TargetError> {
        match self {
            Target::Definition(bundle) => {
                let plan = library
                    .compile(tenant, bundle)
                    .await
                    .map_err(TargetError::Workflow)?;
                let inputs = bind(&plan.interface_inputs, &given).map_err(TargetError::Inputs)?;
                Ok((plan, inputs))
            }
            Target::Node(node) => {
                let mut planned = {
                    let catalogue = with_plugins(library.catalogue(), &node.node_types);
                    node.plan(&catalogue, given)
                };
                if let Err(TargetError::Workflow(violations)) = &mut planned {
                    library.explain(tenant, violations).await;
                }
                planned
            }
        }
    }
}

impl Node {
    fn plan(
        &self,
        catalogue: &Catalogue,
        given: Map<String, Value>,
    ) -> Result<(Arc<Plan>, RunInputs), TargetError> {
        let shape = self.shape(catalogue, &given)?;
        let inputs = bind(&shape.inputs, &given).map_err(TargetError::Inputs)?;
        let workflow =
            Workflow::of_single_node(&self.full_type, self.config.clone(), given, &shape);
        let plan = compile(&workflow, catalogue).map_err(TargetError::Workflow)?;
        Ok((Arc::new(plan), inputs))
    }

    fn shape(
        &self,
        catalogue: &Catalogue,
        given: &Map<String, Value>,
    ) -> Result<Shape, TargetError> {
        let Some(node) = catalogue.get(&self.full_type) else {
            if plugin_of(&self.full_type).is_some() {
                let missing = missing("/full_type".to_owned(), &self.full_type, None);
                return Err(TargetError::Workflow(vec![missing]));
            }
            let message = format!("there is no node type `{}`", self.full_type);
            let violation = Violation::new("/full_type", "unknown_node_type", message);
            return Err(TargetError::Workflow(vec![
                violation.nearest(&self.full_type, catalogue.names()),
            ]));
        };
        let context = ShapeContext {
            definition: node.definition(),
            config: &self.config,
            presets: given,
            connected: &[],
            interface_inputs: &[],
            interface_outputs: &[],
            own_interface: None,
        };
        node.shape(&context).map_err(|mut violations| {
            // A node names its presets, which here are the inputs of the run.
            let of_inputs = violations
                .iter()
                .all(|violation| violation.pointer.starts_with("/inputValues"));
            for violation in &mut violations {
                let rest = violation
                    .pointer
                    .strip_prefix("/inputValues")
                    .map(str::to_owned);
                violation.pointer = rest.unwrap_or_else(|| {
                    violation
                        .pointer
                        .replace("/configValues", "/config_values_json")
                });
            }
            if of_inputs {
                TargetError::Inputs(violations)
            } else {
                TargetError::Workflow(violations)
            }
        })
    }
}

impl TargetError {
    /// Returns the problems as the error of a run that cannot continue.
    pub(super) fn into_error(self) -> common::CallError {
        let (code, violations) = match self {
            TargetError::Workflow(violations) if lack_plugins_only(&violations) => {
                (PLUGIN_MISSING, violations)
            }
            TargetError::Workflow(violations) => ("workflow_invalid", violations),
            TargetError::Inputs(violations) => ("invalid_inputs", violations),
        };
        let message = violations
            .first()
            .map(ToString::to_string)
            .unwrap_or_default();
        let error = run_events::outcome::error(common::ErrorCategory::Validation, code, message);
        common::CallError {
            violations: violations
                .iter()
                .map(call_wire::violation_to_proto)
                .collect(),
            ..error
        }
    }
}

/// Reads a stored digest.
pub(super) fn read_hash(text: &str) -> Option<Hash> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(Hash(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_reads_back_as_it_was_written() {
        let hash = Hash::of(b"text");
        assert_eq!(read_hash(&hash.to_string()), Some(hash));
        for wrong in ["", "00", &"g".repeat(64), &"é".repeat(32)] {
            assert_eq!(read_hash(wrong), None);
        }
    }
}
