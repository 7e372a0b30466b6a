//! Reading a text, and writing a call.

use call_text::echo::Echo;
use call_text::render::render_call;
use call_text::{Catalogue, Parsed, ProblemCode, native};
use contracts::tavern::common::v1::ParsedText;
use contracts::tavern::gateway::v1::{
    ParseTextRequest, ParseTextResponse, RenderCallRequest, RenderCallResponse,
};
use serde_json::Value;
use tonic::Status;

use super::{GatewayRpc, refuse};
use crate::domain::request::{Problem, Reading, check_call, check_parse};

impl GatewayRpc {
    pub(super) async fn parse(
        &self,
        request: ParseTextRequest,
    ) -> Result<ParseTextResponse, Status> {
        let (text, reading) = check_parse(request, self.max_text).map_err(refuse)?;
        Ok(ParseTextResponse {
            parsed: Some(self.read(&text, &reading).await?),
        })
    }

    pub(super) async fn write_call(
        &self,
        request: RenderCallRequest,
    ) -> Result<RenderCallResponse, Status> {
        let (arguments, dialect) = check_call(&request).map_err(refuse)?;
        let catalogue = self.tools.fresh(request.scope.into()).await?;
        let written = render_call(&request.tool_id, &arguments, dialect, &catalogue);
        let text = written.map_err(|error| {
            let field = if error.path.is_empty() {
                "tool_id"
            } else {
                "arguments_json"
            };
            refuse(vec![Problem {
                field,
                problem: error.to_string(),
            }])
        })?;
        Ok(RenderCallResponse { text })
    }

    /// Reads a text with the tools of a scope. A call that is not known is looked for once more
    /// among the tools of this moment.
    pub(super) async fn read(&self, text: &str, reading: &Reading) -> Result<ParsedText, Status> {
        let mut catalogue = self.tools.catalogue(reading.scope.clone()).await?;
        let mut parsed = parse(text, reading, &catalogue);
        if parsed.problems().any(|problem| names_no_tool(problem.code)) {
            catalogue = self.tools.fresh(reading.scope.clone()).await?;
            parsed = parse(text, reading, &catalogue);
        }
        let echo = Echo::new(reading.untrusted.iter().map(String::as_str));
        Ok(call_wire::parsed_to_proto(&parsed, &catalogue, &echo))
    }
}

fn parse(text: &str, reading: &Reading, catalogue: &Catalogue) -> Parsed {
    let mut parsed =
        call_text::parse_finished(text, catalogue, &reading.policy, reading.finish_reason);
    if let Some(given) = &reading.native {
        let calls = native_calls(given);
        native::supplement(
            &mut parsed,
            native::typed(&calls, catalogue, &reading.policy),
        );
    }
    parsed
}

/// Reads native calls in either form: OpenAI's `tool_calls`, alone or in their message, or
/// Anthropic's content blocks.
fn native_calls(given: &Value) -> Vec<native::NativeCall> {
    let blocks = native::anthropic_blocks(given);
    if !blocks.is_empty() {
        return blocks;
    }
    match given {
        Value::Array(_) => native::openai_calls(&serde_json::json!({ "tool_calls": given })),
        _ => native::openai_calls(given),
    }
}

fn names_no_tool(code: ProblemCode) -> bool {
    matches!(
        code,
        ProblemCode::UnknownTool | ProblemCode::ToolNotAvailable | ProblemCode::EmptyAction
    )
}
