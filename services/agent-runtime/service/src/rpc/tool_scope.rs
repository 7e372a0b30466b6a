//! The scope of an agent's calls, for the registry.

use agent_domain::spelling::{self, HANDLE_TOOLS};
use agent_store::{history::plan_of, profiles::Profiles};
use contracts::tavern::agent::v1::{
    GetToolScopeRequest, GetToolScopeResponse, get_tool_scope_request::Agent,
};
use grpc_kit::{CallContext, Failure};
use run_events::Runs;
use serde_json::Value;

use crate::error::{expect_turn, no_such_profile, store_failure};

/// Returns the scope of a turn, as it was started, or of the present profile.
pub(super) async fn get(
    runs: &Runs,
    context: &CallContext,
    profiles: &Profiles,
    request: GetToolScopeRequest,
) -> Result<GetToolScopeResponse, Failure> {
    let (profile_id, names, tool_ids, approvals) = match request.agent {
        Some(Agent::RunId(run_id)) => {
            expect_turn(&run_id)?;
            let meta = runs.meta(context, &run_id).await?;
            let profile_id = meta.subject.clone();
            let plan = plan_of(meta)?;
            let tool_ids = plan.inventory_ids();
            (profile_id, plan.inventory, tool_ids, plan.approvals)
        }
        Some(Agent::ProfileId(id)) => {
            let tenant = context.tenant();
            let found = profiles.get(tenant, &id).await;
            let Some(known) = found.map_err(|error| store_failure(&error))? else {
                return Err(no_such_profile(tenant, &id, profiles).await);
            };
            let profile = known.document;
            let approvals = profile.tavern.approvals.clone();
            let names = profile.inventory();
            let tool_ids = names.iter().map(|name| spelling::tool_id(name).to_owned());
            let tool_ids = tool_ids.collect();
            (id, names, tool_ids, approvals)
        }
        None => return Err(Failure::invalid_fields().violation("agent", "is missing")),
    };
    Ok(GetToolScopeResponse {
        profile_id,
        tool_ids,
        handle_tool_ids: HANDLE_TOOLS.map(str::to_owned).into(),
        approvals_json: Value::Array(approvals).to_string(),
        names,
    })
}
