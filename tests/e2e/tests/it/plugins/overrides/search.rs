//! Searching tools, by the platform and by a backend.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, ensure};
use contracts::tavern::common::v1::ErrorReason;
use contracts::tavern::plugin::v1::{
    FindToolsRequest, FindToolsResponse,
    tool_search_service_server::{ToolSearchService, ToolSearchServiceServer},
};
use contracts::tavern::registry::v1::{
    SearchToolsRequest, SearchToolsResponse, tool_search_service_client::ToolSearchServiceClient,
};
use serde_json::json;
use testkit::{Stack, serve_backend};
use tonic::{Request, Response, Status};

use crate::plugins::{file, install, package, register};

/// A backend that finds what a test wants.
#[derive(Clone)]
struct Finder {
    finds: Arc<Mutex<Result<Vec<String>, Status>>>,
    /// The options of the last request.
    options: Arc<Mutex<Vec<u8>>>,
}

#[tonic::async_trait]
impl ToolSearchService for Finder {
    async fn find_tools(
        &self,
        request: Request<FindToolsRequest>,
    ) -> Result<Response<FindToolsResponse>, Status> {
        let options = request.metadata().get_bin("tavern-options-bin");
        let options = options.and_then(|options| options.to_bytes().ok());
        *self.options.lock().unwrap_or_else(PoisonError::into_inner) =
            options.unwrap_or_default().to_vec();
        let found = self.finds.lock().unwrap_or_else(PoisonError::into_inner);
        let tool_ids = found.clone()?;
        Ok(Response::new(FindToolsResponse { tool_ids }))
    }
}

impl Finder {
    fn finds(&self, found: Result<&[&str], Status>) {
        let found = found.map(|ids| ids.iter().map(|id| (*id).to_owned()).collect());
        *self.finds.lock().unwrap_or_else(PoisonError::into_inner) = found;
    }
}

/// Installs a plugin whose backend searches, with a fallback.
async fn start(stack: &Stack, fallback: &str) -> anyhow::Result<Finder> {
    let finder = Finder {
        finds: Arc::new(Mutex::new(Ok(Vec::new()))),
        options: Arc::default(),
    };
    let endpoint = serve_backend(ToolSearchServiceServer::new(finder.clone())).await?;
    register(stack, "finder", endpoint).await?;
    let manifest = json!({
        "name": "finder",
        "version": "1.0.0",
        "services": {"override": {"tool-search": {"backend": "finder", "fallback": fallback}}},
        "permissions": {"services": {"override": ["tool-search"]}},
        "configOptions": [{
            "key": "extensions.finder.language",
            "type": "string",
            "displayName": "Language",
            "default": "en",
        }],
    });
    let files = vec![file("plugin.yaml", manifest.to_string())];
    install(stack, &package(files)?).await?;
    Ok(finder)
}

async fn search(stack: &Stack, query: &str) -> Result<SearchToolsResponse, Status> {
    let mut client = ToolSearchServiceClient::new(stack.transport_with(stack.key()).outermost());
    let request = SearchToolsRequest {
        query: query.to_owned(),
        limit: 3,
    };
    Ok(client.search_tools(request).await?.into_inner())
}

fn ids(found: &SearchToolsResponse) -> Vec<&str> {
    found.tools.iter().map(|tool| &*tool.tool_id).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn r504_tools_are_found_by_their_id_their_name_and_their_text() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let exact = search(&stack, "FileOperator.ReadFile").await?;
    ensure!(ids(&exact)[0] == "FileOperator.ReadFile", "{exact:?}");
    ensure!(exact.searched_by.is_empty() && exact.tools.len() == 3);
    let named = search(&stack, "how can I query the knowledge base").await?;
    ensure!(
        ids(&named)[0] == "QueryKnowledgeBaseTool",
        "{:?}",
        ids(&named)
    );
    let none = search(&stack, "?!").await?;
    ensure!(none.tools.is_empty());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn r207_a_backend_finds_tools_and_unknown_ones_are_left_out() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let finder = start(&stack, "fail").await?;
    finder.finds(Ok(&["SleepTool", "no.such.tool", "UpdateGoalTool"]));
    let found = search(&stack, "anything").await?;
    ensure!(ids(&found) == ["SleepTool", "UpdateGoalTool"], "{found:?}");
    ensure!(found.searched_by == "finder");
    let options = finder
        .options
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    let options: serde_json::Value = serde_json::from_slice(&options)?;
    ensure!(options["language"] == "en", "{options}");
    finder.finds(Err(Status::internal("broken")));
    let failed = search(&stack, "anything").await.err().context("it fails")?;
    ensure!(
        grpc_kit::reason(&failed) == Some(ErrorReason::OverrideFailed),
        "{failed:?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn r208_the_search_of_the_platform_answers_where_the_manifest_falls_back()
-> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let finder = start(&stack, "builtin").await?;
    finder.finds(Err(Status::unavailable("restarting")));
    let found = search(&stack, "SleepTool").await?;
    ensure!(
        ids(&found)[0] == "SleepTool" && found.searched_by.is_empty(),
        "{found:?}"
    );
    finder.finds(Ok(&["UpdateGoalTool"]));
    let found = search(&stack, "SleepTool").await?;
    ensure!(ids(&found) == ["UpdateGoalTool"] && found.searched_by == "finder");
    Ok(())
}
