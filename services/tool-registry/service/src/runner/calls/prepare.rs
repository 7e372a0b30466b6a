//! Every check of a call that can be made before it leaves.

use std::sync::Arc;

use call_outcome::{Category, Failure};
use contracts::tavern::common::v1::{CallApproval, CallGrant, HookApplied};
use core_types::{MAX_CALL_DEPTH, Tenant};
use grpc_kit::CallContext;
use serde_json::Value;

use super::{Call, Inner};
use crate::{
    arguments::Arguments,
    dispatch::ScriptTerms,
    runner::{agents::AgentsAbove, rights},
    tools::Missing,
};
use tool_domain::{availability, catalogue::Catalogue, plugin_node::node_type_of, tool::Tool};

/// The most of the arguments that fits into an event of the run log beside everything else, in bytes.
const MAX_ARGUMENT_BYTES: usize = 1_000 << 10;

/// A call that passed every check.
pub(super) struct Ready {
    pub(super) tool: Arc<Tool>,
    /// The terms of its plugin.
    pub(super) terms: ScriptTerms,
    pub(super) arguments: Arguments,
    pub(super) defaulted: Vec<String>,
    pub(super) approval: Option<CallApproval>,
    /// The hook that answers in the tool's place, and its output.
    pub(super) answer: Option<(String, Value)>,
    /// The applications of hooks.
    pub(super) applied: Vec<HookApplied>,
}

impl Ready {
    pub(super) fn approved(self, approval: CallApproval) -> Self {
        Self {
            approval: Some(approval),
            ..self
        }
    }
}

impl Inner {
    /// Checks everything that can be checked before a call leaves.
    pub(super) async fn prepare(
        &self,
        call: &Call,
        arguments: &Arguments,
        above: &AgentsAbove,
        context: &CallContext,
    ) -> Result<Ready, Failure> {
        let (tool, terms) = self.find_for(call, context.tenant()).await?;
        let catalogue = self.tools.catalogue(context.tenant()).await;
        let catalogue = catalogue.map_err(|error| Missing::from(error).into_failure(&call.tool))?;
        let may = rights::check(&self.identities, context.principal(), &tool);
        if let Err(failure) = may {
            let denied = self.audit.deny_tool(context.principal(), tool.id());
            denied.await;
            return Err(failure);
        }
        above.check(&tool, &catalogue)?;
        if tool.implementation().is_run() && context.path().depth() >= MAX_CALL_DEPTH {
            let message = format!(
                "{} was not started: calls are nested {MAX_CALL_DEPTH} deep ({}); a tool or workflow seems \
                 to call itself",
                tool.id(),
                context.path().steps().join(" > ")
            );
            return Err(Failure::new(Category::Limit, "depth_exceeded", message));
        }
        if let Some(grant) = &call.grant {
            check_grant(&tool, grant, &catalogue)?;
        }
        let checked = tool
            .check(arguments)
            .map_err(|violations| Failure::invalid_arguments(tool.id(), violations))?;
        let arguments = match checked.arguments == **arguments {
            true => arguments.clone(),
            // Defaults came in, or empty values went out.
            false => Arguments::from(checked.arguments),
        };
        let bytes = arguments.text().len();
        if bytes > MAX_ARGUMENT_BYTES {
            let message = format!(
                "the arguments have {bytes} bytes; at most {MAX_ARGUMENT_BYTES} are accepted"
            );
            return Err(Failure::new(Category::Limit, "limit_exceeded", message));
        }
        Ok(Ready {
            tool,
            terms,
            arguments,
            defaulted: checked.defaulted,
            approval: None,
            answer: None,
            applied: Vec::new(),
        })
    }

    /// Returns the tool of a call with its terms: as the package of the call brings it (rule R107), else as it is now.
    async fn find_for(
        &self,
        call: &Call,
        tenant: Tenant,
    ) -> Result<(Arc<Tool>, ScriptTerms), Failure> {
        let found = self.tools.find_with_terms(tenant, &call.tool).await;
        let found = found.map_err(|missing| missing.into_failure(&call.tool));
        let package = &call.package_digest;
        let is_of_package = |(_, terms): &(_, ScriptTerms)| terms.package_digest == *package;
        if package.is_empty() || found.as_ref().is_ok_and(is_of_package) {
            return found;
        }
        let kept = self.plugins.kept_tool(tenant, package, &call.tool).await;
        match (kept, found) {
            (Some(kept), _) => Ok(kept),
            // A node has the slots of its own package only.
            (None, Ok(_)) if node_type_of(&call.tool).is_some() => Err(plugin_missing(&call.tool)),
            // It is switched off, or waits for options.
            (None, found) => found,
        }
    }
}

/// Refuses a call that was repaired, or has two readings.
pub(super) fn check_confirmed(call: &Call, tool: &Tool) -> Result<(), Failure> {
    if !call.needs_confirmation {
        return Ok(());
    }
    let message = format!(
        "the call of {} was repaired or can be read in two ways, so it was not carried out; \
         write the call again exactly as it is meant",
        tool.id()
    );
    let code = "needs_confirmation";
    Err(Failure::new(Category::Policy, code, message))
}

/// Makes the failure of a call whose package is not kept any more.
fn plugin_missing(tool: &str) -> Failure {
    let message = format!(
        "the package with which the run began does not bring {tool} any more here; start the run again, so that it takes \
         the package in force"
    );
    Failure::new(Category::Dependency, "plugin_missing", message)
}

/// Refuses a call that the agent for which it is made may not make (rule G206).
fn check_grant(tool: &Tool, grant: &CallGrant, catalogue: &Catalogue) -> Result<(), Failure> {
    if let Some(granted) = &grant.tools
        && !availability::names(&granted.tool_ids, tool.id(), catalogue)
    {
        let message = format!(
            "{} is not a tool of the agent for which it was called; add it to the tool_ids_inventory of its \
             profile, or call another one",
            tool.id()
        );
        let code = "tool_not_available";
        return Err(Failure::new(Category::Policy, code, message));
    }
    if grant.depth == Some(0) && tool.implementation().is_nested() {
        let message = format!(
            "{} was not started: the agent may have no more agents and workflows one below the other (its \
             budget `depth`); do its work without it",
            tool.id()
        );
        return Err(Failure::new(Category::Limit, "depth_exceeded", message));
    }
    Ok(())
}
