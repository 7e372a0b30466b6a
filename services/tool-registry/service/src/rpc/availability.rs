//! Explaining whether tools can be called (rule R503).

use std::sync::Arc;

use call_outcome::sentences;
use contracts::tavern::{
    access::v1::Permission,
    common::v1::ErrorReason,
    registry::v1::{
        self as registry, AvailabilityLayer, AvailabilityScope, AvailabilityVerdict,
        ExplainAvailabilityRequest, ExplainAvailabilityResponse, ToolAvailability,
    },
};
use core_types::{Principal, Tenant};
use grpc_kit::{CallContext, Failure};
use hook_chain::ActiveHook;
use run_events::store_failure;
use serde_json::json;
use tonic::{Code, Status};

use super::refusal;
use crate::{
    approvals::Approvals,
    identities::{Identities, Rights},
    runner::{
        agents::{Agent, Agents, Unknown},
        rights,
    },
    tools::{Missing, Tools},
};
use tool_domain::{
    availability::{Layer, LayerVerdict, Scope, WorkflowTools},
    catalogue::Catalogue,
    hook_point::HookPoint,
    manifest::OnFailure,
    tool::Tool,
};

/// A scope with the documents that it names, and the principal that would call.
struct Resolved {
    principal: Principal,
    rights: Rights,
    agent: Option<Arc<Agent>>,
    workflow: Option<WorkflowTools>,
}

/// Returns a suspended hook whose failures refuse calls of a tool.
async fn suspended(
    tools: &Tools,
    tenant: Tenant,
    tool: &Tool,
) -> Result<Option<Arc<ActiveHook>>, Status> {
    let point = HookPoint::ToolBeforeCall;
    if !tools.has_hooks(point) {
        return Ok(None);
    }
    let view = tools.view(tenant).await;
    let view = view.map_err(|error| store_failure(&error).into_status())?;
    let call = json!({"tool_id": tool.id()});
    let refuses = |hook: &&Arc<ActiveHook>| {
        let denies = hook.hook.on_failure == OnFailure::Deny;
        hook.may_apply(&[("call", &call)])
            && denies
            && hook.health().is_suspended()
            && !view.choices.is_off(&hook.plugin)
    };
    Ok(view.revision.hooks.at(point).find(refuses).cloned())
}

/// Explains a tool whose calls a suspended hook refuses.
fn of_suspended(hook: &ActiveHook) -> ToolAvailability {
    let exists = LayerVerdict::passed(Layer::Exists, "");
    let active = LayerVerdict {
        layer: Layer::Active,
        passes: false,
        document: format!(
            "the hook {} before its calls is suspended, and refuses those to which it applies: {}",
            hook.name(),
            hook.health().last_failure()
        ),
        remedy: format!(
            "Correct the plugin, or switch it off: tavern plugins disable {}",
            hook.plugin
        ),
    };
    to_proto(AvailabilityVerdict::ToolNotAvailable, vec![exists, active])
}

/// Explains for each tool.
pub(super) async fn explain(
    tools: &Tools,
    (agents, identities): (&Agents, &Identities),
    approvals: &Approvals,
    (context, request): (CallContext, ExplainAvailabilityRequest),
) -> Result<ExplainAvailabilityResponse, Status> {
    let scope = request.scope.unwrap_or_default();
    let principal = principal_of(identities, context.principal(), &request.principal)?;
    let rights = identities.rights(&principal);
    let (agent, workflow) = resolve(tools, agents, &context, scope).await?;
    let resolved = Resolved {
        principal,
        rights,
        agent,
        workflow,
    };
    let tenant = context.tenant();
    let catalogue = tools.catalogue(tenant).await;
    let catalogue = catalogue.map_err(|error| store_failure(&error))?;
    let mut explained = Vec::with_capacity(request.tool_ids.len());
    for tool_id in request.tool_ids {
        let verdict = match tools.find(tenant, resolved.tool_named(&tool_id)).await {
            Ok(tool) => match suspended(tools, tenant, &tool).await? {
                Some(hook) => of_suspended(&hook),
                None => resolved.of_tool(&tool, &catalogue, approvals),
            },
            Err(Missing::Unavailable(status)) => return Err(refusal::unavailable(&status)),
            Err(Missing::Unknown { suggestions }) => resolved.of_unknown(suggestions, &catalogue),
            Err(Missing::NotActive(reason)) => {
                let exists = LayerVerdict::passed(Layer::Exists, "");
                let active = LayerVerdict {
                    layer: Layer::Active,
                    passes: false,
                    document: reason.sentence(&tool_id),
                    remedy: reason.remedy(&tool_id),
                };
                to_proto(AvailabilityVerdict::ToolNotAvailable, vec![exists, active])
            }
            Err(Missing::Invalid(violations)) => {
                let exists = LayerVerdict::passed(Layer::Exists, "");
                let active = LayerVerdict {
                    layer: Layer::Active,
                    passes: false,
                    document: sentences(&violations),
                    remedy: format!("Correct what {tool_id} is bound to."),
                };
                to_proto(AvailabilityVerdict::ToolInvalid, vec![exists, active])
            }
        };
        explained.push(ToolAvailability { tool_id, ..verdict });
    }
    Ok(ExplainAvailabilityResponse { tools: explained })
}

async fn resolve(
    tools: &Tools,
    agents: &Agents,
    context: &CallContext,
    scope: AvailabilityScope,
) -> Result<(Option<Arc<Agent>>, Option<WorkflowTools>), Status> {
    let mut failure = Failure::invalid_fields();
    if !scope.run_id.is_empty() && !scope.profile_id.is_empty() {
        failure.add_violation(
            "scope.profile_id",
            "is given beside run_id; keep one of both",
        );
    }
    if !scope.node_path.is_empty() && scope.workflow_id.is_empty() {
        failure.add_violation(
            "scope.workflow_id",
            "is missing; a node is one of a workflow",
        );
    }
    failure.refuse_if_any()?;
    let agent = match (scope.run_id.as_str(), scope.profile_id.as_str()) {
        ("", "") => None,
        ("", profile_id) => Some(agents.of_profile(context, profile_id).await),
        (run_id, _) => Some(agents.of_turn(context, run_id).await),
    };
    let workflow = match scope.workflow_id.as_str() {
        "" => None,
        workflow_id => {
            let found = tools.workflow_tools(context.tenant(), workflow_id, &scope.node_path);
            Some(found.await?)
        }
    };
    let agent = agent.transpose().map_err(Unknown::into_status)?;
    Ok((agent, workflow))
}

/// Returns the principal that would call: the caller, or the one of its tenant that an administrator names.
fn principal_of(
    identities: &Identities,
    caller: &Principal,
    named: &str,
) -> Result<Principal, Status> {
    if named.is_empty() || named == caller.as_str() {
        return Ok(caller.clone());
    }
    let administer = Permission::Administer;
    if !identities.rights(caller).permits(administer) {
        let message = format!("`{caller}` may see the rights of no principal but its own");
        return Err(refusal::not_permitted(caller, administer, message).into_status());
    }
    let tenant = caller.tenant();
    let principal = match named.contains('/') {
        true => Principal::new(named),
        false => Principal::of(tenant, named),
    };
    let principal = principal.map_err(|error| {
        let failure = Failure::invalid_fields().violation("principal", error.to_string());
        failure.into_status()
    })?;
    if !identities.knows(&principal) || principal.tenant() != tenant {
        let message = format!("no principal has the name `{named}`");
        let (code, reason) = (Code::NotFound, ErrorReason::PrincipalNotFound);
        let failure = Failure::new(code, reason, message).metadata("principal", named);
        return Err(failure.into_status());
    }
    Ok(principal)
}

impl Resolved {
    /// Returns the tool that a name means to the agent.
    fn tool_named<'a>(&'a self, written: &'a str) -> &'a str {
        match &self.agent {
            Some(agent) => agent.tools.tool_named(written),
            None => written,
        }
    }

    fn of_tool(
        &self,
        tool: &Tool,
        catalogue: &Catalogue,
        approvals: &Approvals,
    ) -> ToolAvailability {
        let scope = Scope {
            agent: self.agent.as_ref().map(|agent| &agent.tools),
            workflow: self.workflow.as_ref(),
        };
        let mut layers = vec![
            LayerVerdict::passed(Layer::Exists, tool.origin().to_string()),
            LayerVerdict::passed(Layer::Active, ""),
        ];
        layers.extend(scope.layers(tool, catalogue));
        layers.push(rights::explain(&self.rights, &self.principal, tool));
        let verdict = match layers.iter().all(|layer| layer.passes) {
            true => AvailabilityVerdict::Available,
            false => AvailabilityVerdict::ToolNotAvailable,
        };
        let rules = self.agent.as_ref().map(|agent| agent.rules());
        ToolAvailability {
            then: approvals.outlook(rules.as_slice(), tool),
            ..to_proto(verdict, layers)
        }
    }

    /// Explains that no tool has an id. Of the ids that may have been meant, those that the agent lacks
    /// are left out.
    fn of_unknown(&self, mut suggestions: Vec<String>, catalogue: &Catalogue) -> ToolAvailability {
        if let Some(agent) = &self.agent {
            suggestions.retain(|id| agent.tools.has(id, catalogue));
        }
        let remedy = match suggestions.first() {
            Some(nearest) => format!("Did you mean {nearest}?"),
            None => {
                "Register the tool with PutTool, or install the plugin that brings it.".to_owned()
            }
        };
        let exists = LayerVerdict {
            layer: Layer::Exists,
            passes: false,
            document: "no tool has this id".to_owned(),
            remedy,
        };
        ToolAvailability {
            suggestions,
            ..to_proto(AvailabilityVerdict::UnknownTool, vec![exists])
        }
    }
}

fn to_proto(verdict: AvailabilityVerdict, layers: Vec<LayerVerdict>) -> ToolAvailability {
    let blocking = layers.iter().find(|layer| !layer.passes);
    let first_blocking = blocking.map(|layer| layer_to_proto(layer.layer));
    ToolAvailability {
        verdict: verdict.into(),
        first_blocking: first_blocking.unwrap_or_default().into(),
        remedy: blocking.map_or_else(String::new, |layer| layer.remedy.clone()),
        layers: layers
            .into_iter()
            .map(|verdict| registry::LayerVerdict {
                layer: layer_to_proto(verdict.layer).into(),
                passes: verdict.passes,
                document: verdict.document,
            })
            .collect(),
        ..ToolAvailability::default()
    }
}

fn layer_to_proto(layer: Layer) -> AvailabilityLayer {
    match layer {
        Layer::Exists => AvailabilityLayer::Exists,
        Layer::Active => AvailabilityLayer::Active,
        Layer::Inventory => AvailabilityLayer::Inventory,
        Layer::Workflow => AvailabilityLayer::Workflow,
        Layer::Node => AvailabilityLayer::Node,
        Layer::Caller => AvailabilityLayer::Caller,
    }
}
