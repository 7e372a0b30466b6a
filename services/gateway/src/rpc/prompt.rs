//! Writing the section of a prompt that teaches a model to call tools.

use call_text::prompt::render_tools;
use contracts::tavern::gateway::v1::{RenderToolsRequest, RenderToolsResponse};
use tonic::Status;

use super::GatewayRpc;
use super::request::{check_render, scope_of};
use crate::tools::Loaded;

impl GatewayRpc {
    pub(super) async fn render(
        &self,
        request: RenderToolsRequest,
    ) -> Result<RenderToolsResponse, Status> {
        let style = check_render(&request)?;
        let Loaded { catalogue, missing } = self.tools.load(scope_of(request.scope)).await?;
        let rendered = render_tools(&catalogue, style.dialect, style.language, style.detail);
        let tool_ids = catalogue.tools().map(|tool| tool.id.clone()).collect();
        Ok(RenderToolsResponse {
            text: rendered.text,
            digest: rendered.digest,
            tool_ids,
            missing_tool_ids: missing,
        })
    }
}
