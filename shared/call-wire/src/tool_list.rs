//! Every tool of a tenant, as the registry lists them.

use call_catalogue::RemovedTool;
use contracts::tavern::registry::v1 as registry;

/// The most tools of a tenant that are read.
const MAX_TOOLS: usize = 20_000;

/// The number of tools that the registry returns in a page.
const PAGE: i32 = 500;

/// Every tool of a tenant, and the tools that plugins brought and bring no more.
#[derive(Clone, Debug, Default)]
pub struct ToolList {
    /// The tools by id, at most 20,000 and the rest of a page.
    pub tools: Vec<registry::Tool>,
    /// The removed tools by id; none if there are more tools than are read.
    pub removed: Vec<RemovedTool>,
}

impl ToolList {
    /// Reads all pages of `ListTools`, each by a call of `list`.
    ///
    /// # Errors
    /// The first failure of `list`.
    pub async fn read<F, E>(list: impl Fn(registry::ListToolsRequest) -> F) -> Result<Self, E>
    where
        F: Future<Output = Result<registry::ListToolsResponse, E>>,
    {
        let mut read = Self::default();
        let mut page_token = String::new();
        loop {
            let page_size = PAGE;
            let request = registry::ListToolsRequest {
                page_size,
                page_token,
            };
            let page = list(request).await?;
            read.tools.extend(page.tools);
            read.removed
                .extend(page.removed_tools.into_iter().map(removed));
            page_token = page.next_page_token;
            if page_token.is_empty() || read.tools.len() >= MAX_TOOLS {
                return Ok(read);
            }
        }
    }
}

fn removed(tool: registry::RemovedTool) -> RemovedTool {
    RemovedTool {
        id: tool.tool_id,
        plugin: tool.plugin,
    }
}
