//! Which tools a text may speak of.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use call_catalogue::Catalogue;
use contracts::tavern::agent::v1::{GetToolScopeRequest, get_tool_scope_request::Agent};
use contracts::tavern::registry::v1::{BatchGetToolsRequest, ListToolsRequest, Tool};
use tonic::Status;

use crate::domain::scope::Scope;
use crate::peers::Peers;

/// How long a catalogue is used before the registry is asked again.
const FRESH_FOR: Duration = Duration::from_secs(1);

/// How many scopes are remembered.
const MAX_REMEMBERED: usize = 256;

/// How many tools the registry returns in a page.
const PAGE: i32 = 500;

/// The most ids that the registry takes at once.
const MAX_BATCH: usize = 500;

/// The most tools that one text may choose from.
const MAX_TOOLS: usize = 20_000;

/// Gives the catalogue of a scope, remembered for a second.
///
/// A text whose call is not known asks for a catalogue that is really new, so a tool can be
/// called as soon as it is registered.
#[derive(Clone, Debug)]
pub(crate) struct Catalogues {
    peers: Peers,
    /// Locked for a look-up or a change, never across an await.
    remembered: Arc<Mutex<HashMap<Scope, Remembered>>>,
}

#[derive(Clone, Debug)]
struct Remembered {
    catalogue: Catalogue,
    since: Instant,
}

/// The tools of a scope as they are now.
#[derive(Clone, Debug)]
pub(crate) struct Loaded {
    pub(crate) catalogue: Catalogue,
    /// The ids that the scope or its agent names and that no visible tool has.
    pub(crate) missing: Vec<String>,
}

/// Tools of the registry, and the ids asked for that no tool has.
#[derive(Debug, Default)]
struct Named {
    tools: Vec<Tool>,
    missing: Vec<String>,
}

impl Catalogues {
    pub(crate) fn new(peers: Peers) -> Self {
        Self {
            peers,
            remembered: Arc::default(),
        }
    }

    /// Gives the catalogue of a scope, at most a second old.
    pub(crate) async fn catalogue(&self, key: Scope) -> Result<Catalogue, Status> {
        if let Some(catalogue) = self.remembered(&key) {
            return Ok(catalogue);
        }
        Ok(self.load(key).await?.catalogue)
    }

    fn remembered(&self, key: &Scope) -> Option<Catalogue> {
        let remembered = self
            .remembered
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let found = remembered.get(key)?;
        (found.since.elapsed() < FRESH_FOR).then(|| found.catalogue.clone())
    }

    /// Returns the tools of a scope as they are now.
    pub(crate) async fn load(&self, key: Scope) -> Result<Loaded, Status> {
        let since = Instant::now();
        let wanted = self.wanted(&key).await?;
        let mut missing = key.beyond(wanted.as_deref());
        let everything = self.list().await?;
        let (visible, hidden) = match &wanted {
            None => (everything, Vec::new()),
            Some(ids) if ids.is_empty() => (Vec::new(), ids_of(&everything)),
            Some(ids) => {
                let visible = self.named(ids).await?;
                missing.extend(visible.missing);
                let seen = ids_of(&visible.tools);
                let mut hidden = ids_of(&everything);
                hidden.retain(|id| !seen.contains(id));
                (visible.tools, hidden)
            }
        };
        let catalogue =
            call_wire::catalogue(&visible, hidden).map_err(|error| grpc_kit::internal(&error))?;
        let mut remembered = self
            .remembered
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if remembered.len() >= MAX_REMEMBERED {
            remembered.retain(|_, old| old.since.elapsed() < FRESH_FOR);
        }
        if remembered.len() < MAX_REMEMBERED {
            remembered.insert(
                key,
                Remembered {
                    catalogue: catalogue.clone(),
                    since,
                },
            );
        }
        Ok(Loaded { catalogue, missing })
    }

    /// Returns the ids that the scope takes; nothing means every tool.
    async fn wanted(&self, key: &Scope) -> Result<Option<Vec<String>>, Status> {
        if key.without_agent() {
            return Ok(key.wanted(None));
        }
        let request = GetToolScopeRequest {
            agent: Some(Agent::ProfileId(key.profile_id.clone())),
        };
        let answer = self.peers.agent.clone().get_tool_scope(request).await?;
        Ok(key.wanted(Some(answer.into_inner().tool_ids)))
    }

    /// Returns the tools with the given ids, and the ids that no tool has.
    async fn named(&self, tool_ids: &[String]) -> Result<Named, Status> {
        let mut named = Named::default();
        for tool_ids in tool_ids.chunks(MAX_BATCH) {
            let request = BatchGetToolsRequest {
                tool_ids: tool_ids.to_vec(),
                ..Default::default()
            };
            let mut registry = self.peers.registry.clone();
            let batch = registry.batch_get_tools(request).await?.into_inner();
            named.tools.extend(batch.tools);
            named.missing.extend(batch.missing_tool_ids);
        }
        Ok(named)
    }

    async fn list(&self) -> Result<Vec<Tool>, Status> {
        let mut tools = Vec::new();
        let mut request = ListToolsRequest {
            page_size: PAGE,
            page_token: String::new(),
        };
        loop {
            let mut registry = self.peers.registry.clone();
            let page = registry.list_tools(request.clone()).await?.into_inner();
            tools.extend(page.tools);
            if page.next_page_token.is_empty() || tools.len() >= MAX_TOOLS {
                return Ok(tools);
            }
            request.page_token = page.next_page_token;
        }
    }
}

fn ids_of(tools: &[Tool]) -> Vec<String> {
    tools.iter().map(|tool| tool.tool_id.clone()).collect()
}
