//! Writing the section of a prompt that teaches a model to call tools.

use call_text::prompt::render_tools;
use contracts::tavern::gateway::v1::{RenderToolsRequest, RenderToolsResponse};
use tonic::Status;

use super::GatewayRpc;
use super::request::check_render;
use crate::tools::Loaded;

impl GatewayRpc {
    pub(super) async fn render(
        &self,
        request: RenderToolsRequest,
    ) -> Result<RenderToolsResponse, Status> {
        let asked = check_render(request)?;
        let Loaded { catalogue, missing } = self.load(asked.tools).await?;
        let rendered = render_tools(&catalogue, asked.dialect, asked.language, asked.detail);
        let tool_ids = catalogue.tools().map(|tool| tool.id.clone()).collect();
        Ok(RenderToolsResponse {
            text: rendered.text,
            digest: rendered.digest,
            tool_ids,
            missing_tool_ids: missing,
        })
    }
}
