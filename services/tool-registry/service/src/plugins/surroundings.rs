//! The surroundings of a plugin in the other services: documents that name its tools, and the abilities of the sandbox.
//!
//! A neighbour that does not answer in time is passed over: a plan then lists fewer dependents, and a call reports its
//! failure itself.

use std::{collections::BTreeSet, time::Duration};

use call_outcome::Violation;
use contracts::tavern::{
    agent::v1::{ListProfilesRequest, profile_service_client::ProfileServiceClient},
    sandbox::v1::{
        GetIsolationRequest, Limits, ListRuntimesRequest, PackageSet, Runtime,
        script_sandbox_service_client::ScriptSandboxServiceClient,
    },
    workflow::v1::{ListWorkflowsRequest, workflow_service_client::WorkflowServiceClient},
};
use core_types::Tenant;
use grpc_kit::{CallContext, Transport};
use plugin_package::{MANIFEST, Plugin};
use serde_json::Value;
use tonic::Status;
use tool_domain::{
    definition::Implementation,
    permissions::{Permission, ResourceRequest},
    plan::Dependents,
};

use crate::Peers;

/// The longest wait for all neighbours of one kind.
const PATIENCE: Duration = Duration::from_secs(2);

/// The size of a page of documents.
const PAGE: i32 = 500;

/// The most names of a kind of dependents.
const MAX_DEPENDENTS: usize = 100;

/// The neighbours that plans ask.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// agent-runtime, which has profiles.
    pub agent: Transport,
    /// workflow-execution, which has workflows.
    pub workflow: Transport,
    /// script-sandbox.
    pub sandbox: Transport,
}

impl Surroundings {
    /// Takes the services of a registry.
    pub(crate) fn of(peers: &Peers) -> Self {
        Self {
            agent: peers.agent.clone(),
            workflow: peers.workflow.clone(),
            sandbox: peers.sandbox.clone(),
        }
    }

    /// Returns the documents of tenants that name tools by these ids or aliases; those of a tenant other than the
    /// default one with the name of the tenant.
    pub(super) async fn dependents(
        &self,
        tenants: Vec<Tenant>,
        names: &BTreeSet<String>,
    ) -> Dependents {
        let mut all = Dependents::default();
        if names.is_empty() {
            return all;
        }
        let found = async {
            for tenant in tenants {
                let context = CallContext::of_tenant(tenant);
                let of_tenant = |id: String| match tenant.is_default() {
                    true => id,
                    false => format!("{tenant}/{id}"),
                };
                let profiles = self.profiles(&context, names).await?;
                all.profiles.extend(profiles.into_iter().map(of_tenant));
                let workflows = self.workflows(&context, names).await?;
                all.workflows.extend(workflows.into_iter().map(of_tenant));
            }
            Ok::<_, Status>(())
        };
        match tokio::time::timeout(PATIENCE, found).await {
            Ok(Ok(())) => {}
            failed => tracing::warn!(?failed, "not all dependents of a plugin are known"),
        }
        all.profiles.truncate(MAX_DEPENDENTS);
        all.workflows.truncate(MAX_DEPENDENTS);
        all
    }

    async fn profiles(
        &self,
        context: &CallContext,
        names: &BTreeSet<String>,
    ) -> Result<Vec<String>, Status> {
        let mut client = ProfileServiceClient::new(self.agent.with(context));
        let (mut found, mut page_token) = (Vec::new(), String::new());
        loop {
            let request = ListProfilesRequest {
                page_size: PAGE,
                page_token,
            };
            let page = client.list_profiles(request).await?.into_inner();
            let mine = page.profiles.into_iter().filter(|profile| {
                let is_own = !profile.shared || context.tenant() == Tenant::SYSTEM;
                let mut tools = profile.tool_ids_inventory.iter();
                is_own && tools.any(|tool| names.contains(tool))
            });
            found.extend(mine.map(|profile| profile.profile_id));
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return Ok(found);
            }
        }
    }

    async fn workflows(
        &self,
        context: &CallContext,
        names: &BTreeSet<String>,
    ) -> Result<Vec<String>, Status> {
        let mut client = WorkflowServiceClient::new(self.workflow.with(context));
        let (mut found, mut page_token) = (Vec::new(), String::new());
        loop {
            let request = ListWorkflowsRequest {
                page_size: PAGE,
                page_token,
                with_references: false,
            };
            let page = client.list_workflows(request).await?.into_inner();
            let mine = page.workflows.into_iter().filter(|workflow| {
                let is_own = !workflow.shared || context.tenant() == Tenant::SYSTEM;
                let read = serde_json::from_str::<Value>(&workflow.definition_json);
                is_own && read.is_ok_and(|definition| has_text(&definition, names))
            });
            found.extend(mine.map(|workflow| workflow.workflow_id));
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return Ok(found);
            }
        }
    }

    /// Returns the parts of a plugin that the sandbox cannot carry out: interpreters, package sets, limits.
    pub(super) async fn unable(&self, plugin: &Plugin) -> Vec<Violation> {
        let context = CallContext::of_tenant(Tenant::SYSTEM);
        let sandbox = self.sandbox.with(&context);
        let mut client = ScriptSandboxServiceClient::new(sandbox.clone());
        let mut other = ScriptSandboxServiceClient::new(sandbox);
        let asked = async {
            let isolation = other.get_isolation(GetIsolationRequest {});
            tokio::try_join!(client.list_runtimes(ListRuntimesRequest {}), isolation)
        };
        let Ok(Ok((runtimes, isolation))) = tokio::time::timeout(PATIENCE, asked).await else {
            return Vec::new();
        };
        let maximum = isolation.into_inner().maximum_limits.unwrap_or_default();
        let runtimes = runtimes.into_inner().runtimes;
        let resources = plugin.manifest.permissions.iter().flat_map(|request| {
            let place = format!("{MANIFEST}{}", request.pointer);
            match &request.permission {
                Permission::Resources(resources) => beyond(resources, &maximum, &place),
                _ => Vec::new(),
            }
        });
        resources.chain(unusable(plugin, &runtimes)).collect()
    }
}

/// Whether a text in a JSON value is one of these names.
fn has_text(value: &Value, names: &BTreeSet<String>) -> bool {
    match value {
        Value::String(text) => names.contains(text),
        Value::Array(all) => all.iter().any(|each| has_text(each, names)),
        Value::Object(all) => all.values().any(|each| has_text(each, names)),
        _ => false,
    }
}

/// Returns the limits that are beyond the maxima of the sandbox.
fn beyond(resources: &ResourceRequest, maximum: &Limits, place: &str) -> Vec<Violation> {
    let seconds = |time: Option<prost_types::Duration>| {
        time.and_then(|time| u64::try_from(time.seconds).ok())
    };
    let found = resources.stated().filter_map(|(name, value)| {
        let most = match name {
            "wall_seconds" => seconds(maximum.wall_time),
            "cpu_seconds" => seconds(maximum.cpu_time),
            "memory_bytes" => maximum.memory_bytes,
            _ => maximum.processes.map(u64::from),
        };
        let most = most.filter(|most| value > *most)?;
        let message = format!(
            "asks for {value}, and the sandbox allows at most {most}; ask for less, or raise its setting"
        );
        Some(Violation::new(format!("{place}/{name}"), "too_much", message))
    });
    found.collect()
}

/// Returns the tools whose interpreter or package set is not there.
fn unusable(plugin: &Plugin, runtimes: &[Runtime]) -> Vec<Violation> {
    let mut found = Vec::new();
    for tool in &plugin.tools {
        let Implementation::Script(program) = &tool.implementation else {
            continue;
        };
        let file = plugin.definition_files.get(tool.id.as_str());
        let mut add = |code: &'static str, message: String| {
            let place = file.cloned().unwrap_or_default();
            found.push(Violation::new(place, code, message));
        };
        let is_it = |runtime: &&Runtime| {
            let mut names = runtime.aliases.iter().chain([&runtime.name]);
            names.any(|name| *name == program.runtime)
        };
        let Some(runtime) = runtimes.iter().filter(|each| each.usable).find(is_it) else {
            let usable = runtimes.iter().filter(|runtime| runtime.usable);
            let usable: Vec<&str> = usable.map(|runtime| &*runtime.name).collect();
            let name = &program.runtime;
            let there = usable.join(", ");
            let message =
                format!("its interpreter '{name}' cannot be used here; there are {there}");
            add("runtime_unavailable", message);
            continue;
        };
        let usable = |set: &&PackageSet| set.problem.is_empty();
        let mut sets = runtime.package_sets.iter().filter(usable);
        if !program.packages.is_empty() && !sets.any(|set| set.name == program.packages) {
            let set = &program.packages;
            let message = format!(
                "its package set '{set}' is not built for {}; the operator builds it with `tavern packages build {set}`",
                runtime.name
            );
            add("unknown_package_set", message);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_depends_on_a_tool_that_a_text_of_it_names_exactly() {
        let names = BTreeSet::from(["dice:roll".to_owned()]);
        let of = |definition: &str| has_text(&serde_json::from_str(definition).unwrap(), &names);
        assert!(of(
            r#"{"nodes": [{"inputValues": {"tool_id": "dice:roll"}}]}"#
        ));
        assert!(!of(
            r#"{"dice:roll": "dice:rolls", "x": ["see dice:roll"]}"#
        ));
    }

    #[test]
    fn limits_beyond_those_of_the_sandbox_are_named() {
        let resources = ResourceRequest {
            wall_seconds: Some(601),
            memory_bytes: Some(1 << 20),
            processes: Some(10),
            ..ResourceRequest::default()
        };
        let maximum = Limits {
            wall_time: Some(prost_types::Duration {
                seconds: 600,
                nanos: 0,
            }),
            memory_bytes: Some(1 << 20),
            ..Limits::default()
        };
        let found = beyond(&resources, &maximum, "plugin.yaml/permissions/resources");
        let places: Vec<&str> = found.iter().map(|found| &*found.pointer).collect();
        assert_eq!(places, ["plugin.yaml/permissions/resources/wall_seconds"]);
    }
}
