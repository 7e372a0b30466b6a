//! Finding tools by words (rule R504), by an index of this service or by the backend of a plugin (rule R207).

use std::sync::Arc;

use contracts::tavern::plugin::v1::{FindToolsRequest, FindToolsResponse};
use core_types::{PerTenant, Tenant};
use grpc_kit::CallContext;
use prost::Message;
use tokio::sync::Mutex;
use tonic::Status;
use tool_domain::{manifest::Fallback, tool::Tool};

use crate::{
    overrides::{Answered, StandIns, Unanswered, failed},
    store::{StoreError, tool_index::ToolIndex},
    tools::Tools,
};

/// The service that a plugin overrides.
const SERVICE: &str = "tool-search";

/// The most tenants whose index is kept while none of their searches runs.
const MAX_TENANTS: usize = 64;

/// Finds tools by words. Clone, cheap.
#[derive(Clone, Debug)]
pub(crate) struct ToolSearch {
    tools: Tools,
    stand_ins: StandIns,
    indexes: Arc<PerTenant<IndexOfTenant>>,
}

/// The index of a tenant; none until its first search.
#[derive(Debug, Default)]
struct IndexOfTenant(Mutex<Option<ToolIndex>>);

/// The tools that match, the best first.
#[derive(Clone, Debug)]
pub(crate) struct FoundTools {
    /// The tools.
    pub(crate) tools: Vec<Arc<Tool>>,
    /// The plugin whose backend searched; empty for the index.
    pub(crate) searched_by: String,
}

/// The reason for which nothing was searched.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SearchError {
    /// The tools cannot be listed.
    #[error(transparent)]
    List(Status),
    /// The backend that stands in does not answer.
    #[error(transparent)]
    Override(#[from] Unanswered),
    /// The index does not work.
    #[error(transparent)]
    Index(#[from] StoreError),
}

impl ToolSearch {
    /// Searches these tools.
    pub(crate) fn new(tools: Tools) -> Self {
        Self {
            stand_ins: StandIns::new(tools.clone()),
            tools,
            indexes: Arc::new(PerTenant::new(MAX_TENANTS)),
        }
    }

    /// Drops the index of a tenant from the memory.
    pub(crate) fn forget(&self, tenant: Tenant) {
        self.indexes.forget(tenant);
    }

    /// Finds at most `limit` tools of the caller's tenant.
    ///
    /// # Errors
    /// [`SearchError`] is the reason.
    pub(crate) async fn find(
        &self,
        context: &CallContext,
        query: &str,
        limit: u32,
    ) -> Result<FoundTools, SearchError> {
        let tenant = context.tenant();
        let tools = self.tools.list(tenant).await.map_err(SearchError::List)?;
        let at_most = limit as usize;
        if let Some(found) = self.by_backend(context, query, limit).await? {
            let (ids, searched_by) = found;
            let known = ids.iter().filter_map(|id| {
                let at = tools.binary_search_by(|tool| tool.id().cmp(id)).ok()?;
                Some(Arc::clone(&tools[at]))
            });
            return Ok(FoundTools {
                tools: known.take(at_most).collect(),
                searched_by,
            });
        }
        let of_tenant = self.indexes.of(tenant);
        let mut index = of_tenant.0.lock().await;
        if index.as_ref().is_none_or(|index| !index.is_of(&tools)) {
            *index = Some(ToolIndex::of(&tools).await?);
        }
        let found = match index.as_mut() {
            Some(index) => index.find(query, limit).await?,
            None => Vec::new(),
        };
        let exact = tools.iter().position(|tool| {
            let names = [tool.id(), tool.alias()];
            names.contains(&query.trim())
        });
        let others = found.into_iter().filter(|at| Some(*at) != exact);
        let ranked = exact.into_iter().chain(others).take(at_most);
        Ok(FoundTools {
            tools: ranked.map(|at| Arc::clone(&tools[at])).collect(),
            searched_by: String::new(),
        })
    }

    /// Returns the ids that the backend of a plugin found, with the plugin; `None` where the index is to search.
    async fn by_backend(
        &self,
        context: &CallContext,
        query: &str,
        limit: u32,
    ) -> Result<Option<(Vec<String>, String)>, Unanswered> {
        let revision = self.tools.revision();
        let Some(found) = revision.overrides.get(SERVICE) else {
            return Ok(None);
        };
        let request = FindToolsRequest {
            query: query.to_owned(),
            limit,
        };
        let named = (SERVICE, "FindTools");
        let message = request.encode_to_vec();
        let answered = match self.stand_ins.ask(context, named, &message).await {
            Ok(Some(Answered::Refusal { message, .. })) => {
                Err(failed(found, &format!("refuses: {message}")))
            }
            answered => answered,
        };
        let answered = match answered {
            Err(error) if found.stand_in.fallback == Fallback::Builtin => {
                tracing::warn!(%error, "the index of tools searches in the place of a backend");
                return Ok(None);
            }
            answered => answered?,
        };
        let plugin = found.plugin.name().to_owned();
        Ok(match answered {
            None | Some(Answered::Refusal { .. }) => None,
            Some(Answered::Message(message)) => {
                let read = FindToolsResponse::decode(message.as_slice()).unwrap_or_default();
                Some((read.tool_ids, plugin))
            }
        })
    }
}
