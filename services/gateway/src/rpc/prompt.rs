//! Writes the texts that bring a model to call tools: the section of a prompt, and a grammar.

use call_prompt::grammar::{Unenforced, render_grammar};
use call_prompt::prompt::render_tools;
use contracts::tavern::gateway::v1::{
    RenderGrammarRequest, RenderGrammarResponse, RenderToolsRequest, RenderToolsResponse,
    UnenforcedKeyword,
};
use grpc_kit::{CallContext, Failure};
use tonic::Status;

use super::GatewayRpc;
use super::request::{check_grammar, check_render};
use crate::catalogues::Loaded;

impl GatewayRpc {
    pub(super) async fn render(
        &self,
        context: &CallContext,
        request: RenderToolsRequest,
    ) -> Result<RenderToolsResponse, Status> {
        let asked = check_render(request)?;
        let Loaded { catalogue, missing } = self.load(context, asked.tools).await?;
        let rendered = render_tools(&catalogue, asked.dialect, asked.language, asked.detail);
        let tool_ids = catalogue.tools().map(|tool| tool.id.clone()).collect();
        Ok(RenderToolsResponse {
            text: rendered.text,
            digest: rendered.digest,
            tool_ids,
            missing_tool_ids: missing,
        })
    }

    pub(super) async fn write_grammar(
        &self,
        context: &CallContext,
        request: RenderGrammarRequest,
    ) -> Result<RenderGrammarResponse, Status> {
        let asked = check_grammar(request)?;
        let Loaded { catalogue, missing } = self.load(context, asked.tools).await?;
        let grammar = render_grammar(
            &catalogue,
            asked.dialect,
            asked.mode,
            asked.nonce.as_deref(),
        );
        // Any obstacle lies in the requested tools.
        let grammar = grammar
            .map_err(|error| Failure::invalid_fields().violation("scope", error.to_string()))?;
        Ok(RenderGrammarResponse {
            text: grammar.text,
            unenforced: grammar.unenforced.into_iter().map(keyword).collect(),
            missing_tool_ids: missing,
        })
    }
}

fn keyword(left: Unenforced) -> UnenforcedKeyword {
    UnenforcedKeyword {
        tool_id: left.tool_id,
        pointer: left.pointer,
        keyword: left.keyword,
    }
}
