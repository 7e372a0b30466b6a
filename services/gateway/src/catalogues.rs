//! The tools that a text may call.

use std::sync::Arc;
use std::time::Duration;

use call_catalogue::{Absent, Catalogue};
use call_wire::{NamedTools, ToolList};
use contracts::tavern::agent::v1::{
    GetToolScopeRequest, agent_service_client::AgentServiceClient, get_tool_scope_request::Agent,
};
use contracts::tavern::registry::v1::{
    BatchGetToolsRequest, Tool, tool_registry_service_client::ToolRegistryServiceClient,
};
use core_types::{PerTenant, Tenant};
use grpc_kit::{CallContext, Outbound};
use tonic::Status;

use crate::domain::scope::Scope;
use crate::peers::Peers;
use crate::renewed::Renewed;

/// The time for which a catalogue is used before the registry is queried again.
const FRESH_FOR: Duration = Duration::from_secs(1);

/// The greatest age of a catalogue that is used while the registry is queried.
const STALE_FOR: Duration = Duration::from_secs(30);

/// The most tenants whose catalogues are kept without being in use.
const MAX_TENANTS: usize = 64;

/// The most ids that the registry accepts at once.
const MAX_BATCH: usize = 500;

/// Returns the catalogue of a tenant's scope, at most a second old, or older while it is renewed.
///
/// A text whose call is unknown loads a current catalogue, so a tool can be called as soon as it is
/// registered.
#[derive(Clone, Debug)]
pub(crate) struct Catalogues {
    peers: Peers,
    tenants: Arc<PerTenant<OfTenant>>,
}

/// The catalogues of a tenant by scope.
#[derive(Debug)]
struct OfTenant(Renewed<Scope, Loaded>);

impl Default for OfTenant {
    fn default() -> Self {
        Self(Renewed::new(FRESH_FOR, STALE_FOR))
    }
}

/// A load of the tools of a tenant.
struct Loading {
    registry: ToolRegistryServiceClient<Outbound>,
    agent: AgentServiceClient<Outbound>,
}

/// The present tools of a scope.
#[derive(Clone, Debug)]
pub(crate) struct Loaded {
    pub(crate) catalogue: Catalogue,
    /// The ids that the scope or its agent names and that no visible tool has.
    pub(crate) missing: Vec<String>,
}

/// The tools that a scope selects.
#[derive(Debug, Default)]
struct Taken {
    named: NamedTools,
    /// The inventory of the scope's agent: names and ids of its tools.
    listed: Vec<(String, String)>,
}

impl Catalogues {
    pub(crate) fn new(peers: &Peers) -> Self {
        Self {
            peers: peers.clone(),
            tenants: Arc::new(PerTenant::new(MAX_TENANTS)),
        }
    }

    /// Returns the catalogue of a tenant's scope.
    pub(crate) async fn catalogue(&self, tenant: Tenant, key: Scope) -> Result<Catalogue, Status> {
        let of_tenant = self.tenants.of(tenant);
        let loaded = of_tenant.0.get(&key, || self.loading(tenant, &key)).await?;
        Ok(loaded.catalogue)
    }

    /// Returns the present tools of a tenant's scope.
    pub(crate) async fn load(&self, tenant: Tenant, key: Scope) -> Result<Loaded, Status> {
        let of_tenant = self.tenants.of(tenant);
        of_tenant.0.load(&key, || self.loading(tenant, &key)).await
    }

    fn loading(
        &self,
        tenant: Tenant,
        key: &Scope,
    ) -> impl Future<Output = Result<Loaded, Status>> + use<> {
        // A load serves all callers of the tenant that wait for it, so none of them decides its time.
        let own = CallContext::of_tenant(tenant);
        let loading = Loading {
            registry: self.peers.tools(&own),
            agent: self.peers.agent(&own),
        };
        let key = key.clone();
        async move { loading.tools_of(&key).await }
    }
}

impl Loading {
    async fn tools_of(&self, key: &Scope) -> Result<Loaded, Status> {
        let ToolList { tools, removed } = self.list().await?;
        let (catalogue, missing) = match self.taken(key).await? {
            None => {
                let hidden = Vec::new();
                let catalogue = call_wire::catalogue(&tools, Absent { hidden, removed }, &[]);
                (catalogue, Vec::new())
            }
            Some(taken) => {
                let mut hidden = ids_of(&tools);
                hidden.retain(|id| !taken.named.has(id));
                let names = taken.names();
                let visible = taken.named.tools.into_iter().map(|(_, tool)| tool);
                let visible: Vec<Tool> = visible.collect();
                let catalogue = call_wire::catalogue(&visible, Absent { hidden, removed }, &names);
                (catalogue, taken.named.missing)
            }
        };
        let catalogue = catalogue.map_err(|error| grpc_kit::internal(&error))?;
        Ok(Loaded { catalogue, missing })
    }

    /// Returns the tools that the scope selects: the tools that it names, and only those in an
    /// agent's inventory; `None` means every tool.
    async fn taken(&self, key: &Scope) -> Result<Option<Taken>, Status> {
        if key.profile_id.is_empty() {
            let named = self.named(&key.tool_ids).await?;
            let listed = Vec::new();
            return Ok((!key.tool_ids.is_empty()).then_some(Taken { named, listed }));
        }
        let request = GetToolScopeRequest {
            agent: Some(Agent::ProfileId(key.profile_id.clone())),
        };
        let answer = self.agent.clone().get_tool_scope(request).await?;
        let agent = answer.into_inner();
        let mut taken = Taken {
            named: self.named(&agent.tool_ids).await?,
            listed: agent.names.into_iter().zip(agent.tool_ids).collect(),
        };
        if !key.tool_ids.is_empty() {
            let asked = key.tool_ids.iter().map(|name| taken.id_of(name).to_owned());
            let asked = self.named(&asked.collect::<Vec<_>>()).await?;
            taken.keep(asked);
        }
        Ok(Some(taken))
    }

    /// Returns the tools of these names, and the names that no tool has.
    async fn named(&self, names: &[String]) -> Result<NamedTools, Status> {
        let mut named = NamedTools::default();
        for names in names.chunks(MAX_BATCH) {
            let request = BatchGetToolsRequest {
                tool_ids: names.to_vec(),
                ..Default::default()
            };
            let mut registry = self.registry.clone();
            named.add(names, registry.batch_get_tools(request).await?.into_inner());
        }
        Ok(named)
    }

    async fn list(&self) -> Result<ToolList, Status> {
        let page = |request| {
            let mut registry = self.registry.clone();
            async move { Ok(registry.list_tools(request).await?.into_inner()) }
        };
        ToolList::read(page).await
    }
}

impl Taken {
    /// Returns the agent's id for a name, or else the name itself.
    fn id_of<'a>(&'a self, name: &'a str) -> &'a str {
        let listed = self.listed.iter().find(|(listed, _)| listed == name);
        listed.map_or(name, |(_, id)| id)
    }

    /// Returns the names that only the agent uses for its tools, present and removed ones, with the ids of these tools.
    fn names(&self) -> Vec<(String, String)> {
        let listed = self.listed.iter().filter(|(name, id)| name != id);
        let names = listed.map(|(name, id)| {
            let tool = self.named.tools.iter().find(|(listed, _)| listed == id);
            let id = tool.map_or(id, |(_, tool)| &tool.tool_id);
            (name.clone(), id.clone())
        });
        names.collect()
    }

    /// Keeps the requested ones of the agent's tools; names of other tools are missing.
    fn keep(&mut self, asked: NamedTools) {
        let beyond = asked
            .tools
            .iter()
            .filter(|(_, tool)| !self.named.has(&tool.tool_id));
        let beyond: Vec<String> = beyond.map(|(name, _)| name.clone()).collect();
        self.named
            .tools
            .retain(|(_, tool)| asked.has(&tool.tool_id));
        self.named.missing = [beyond, asked.missing].concat();
    }
}

fn ids_of(tools: &[Tool]) -> Vec<String> {
    tools.iter().map(|tool| tool.tool_id.clone()).collect()
}
