//! The search of tools as a gRPC service.

use contracts::tavern::registry::v1::{
    SearchToolsRequest, SearchToolsResponse, tool_search_service_server::ToolSearchService,
};
use grpc_kit::CallContext;
use tonic::{Request, Response};

use super::{Answer, convert, plugins};
use crate::tool_search::{SearchError, ToolSearch};

/// The default number of tools.
const DEFAULT_FOUND: u32 = 10;

/// The search of tools as a gRPC service.
#[derive(Clone, Debug)]
pub(crate) struct ToolSearchRpc {
    search: ToolSearch,
}

impl ToolSearchRpc {
    /// Serves a search.
    pub(crate) fn new(search: ToolSearch) -> Self {
        Self { search }
    }
}

#[tonic::async_trait]
impl ToolSearchService for ToolSearchRpc {
    async fn search_tools(
        &self,
        request: Request<SearchToolsRequest>,
    ) -> Answer<SearchToolsResponse> {
        let context = CallContext::of(&request);
        let SearchToolsRequest { query, limit } = request.into_inner();
        let limit = match limit {
            0 => DEFAULT_FOUND,
            limit => limit,
        };
        let found = self.search.find(&context, &query, limit).await;
        let found = found.map_err(|error| match error {
            SearchError::List(status) => status,
            SearchError::Override(error) => plugins::unanswered(&error).into_status(),
            SearchError::Index(error) => run_events::store_failure(&error).into_status(),
        })?;
        Ok(Response::new(SearchToolsResponse {
            tools: found
                .tools
                .iter()
                .map(|tool| convert::tool_to_proto(tool))
                .collect(),
            searched_by: found.searched_by,
        }))
    }
}
