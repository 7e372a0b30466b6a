//! Reading a text, and writing a call.

use call_catalogue::{Catalogue, ProblemCode};
use call_prompt::echo::Echo;
use call_prompt::render::render_call;
use call_text::{Parsed, Policy, native};
use contracts::tavern::common::v1::ParsedText;
use contracts::tavern::gateway::v1::{
    ParseTextRequest, ParseTextResponse, RenderCallRequest, RenderCallResponse,
};
use grpc_kit::CallContext;
use serde_json::Value;
use tonic::Status;

use super::GatewayRpc;
use super::catalogue::ToolSource;
use super::problems::Problems;
use super::request::{TextOptions, Writing, check_call, check_parse};
use crate::catalogues::Loaded;

impl GatewayRpc {
    pub(super) async fn parse(
        &self,
        context: &CallContext,
        request: ParseTextRequest,
    ) -> Result<ParseTextResponse, Status> {
        let (text, reading) = check_parse(request, self.max_text)?;
        Ok(ParseTextResponse {
            parsed: Some(self.read(context, &text, &reading).await?),
        })
    }

    pub(super) async fn write_call(
        &self,
        context: &CallContext,
        request: RenderCallRequest,
    ) -> Result<RenderCallResponse, Status> {
        let Writing {
            tool_id,
            arguments,
            dialect,
            tools,
        } = check_call(request)?;
        let catalogue = self.load(context, tools).await?.catalogue;
        let written = render_call(&tool_id, &arguments, dialect, &catalogue);
        let mut problems = Problems::new();
        let text = written.unwrap_or_else(|error| {
            let field = match error.path.is_empty() {
                true => "tool_id",
                false => "arguments_json",
            };
            problems.add(field, error.to_string());
            String::new()
        });
        problems.or(RenderCallResponse { text })
    }

    /// Returns the present tools that a text may call.
    pub(super) async fn load(
        &self,
        context: &CallContext,
        tools: ToolSource,
    ) -> Result<Loaded, Status> {
        match tools {
            ToolSource::Registry(scope) => self.catalogues.load(context.tenant(), scope).await,
            ToolSource::Caller(catalogue) => Ok(Loaded {
                catalogue,
                missing: Vec::new(),
            }),
        }
    }

    /// Reads a text. If a call names an unknown tool, the text is read once more with the
    /// registry's present tools.
    pub(super) async fn read(
        &self,
        context: &CallContext,
        text: &str,
        reading: &TextOptions,
    ) -> Result<ParsedText, Status> {
        let tenant = context.tenant();
        let mut catalogue = match &reading.tools {
            ToolSource::Registry(scope) => self.catalogues.catalogue(tenant, scope.clone()).await?,
            ToolSource::Caller(catalogue) => catalogue.clone(),
        };
        let mut parsed = parse(text, reading, &catalogue);
        if let ToolSource::Registry(scope) = &reading.tools
            && parsed.problems().any(|problem| names_no_tool(problem.code))
        {
            let loaded = self.catalogues.load(tenant, scope.clone()).await?;
            catalogue = loaded.catalogue;
            parsed = parse(text, reading, &catalogue);
        }
        let echo = Echo::new(reading.untrusted.iter().map(String::as_str));
        Ok(call_wire::parsed_to_proto(&parsed, &catalogue, &echo))
    }
}

fn parse(text: &str, reading: &TextOptions, catalogue: &Catalogue) -> Parsed {
    let mut parsed =
        call_text::parse_finished(text, catalogue, &reading.policy, reading.finish_reason);
    if let Some(given) = &reading.native {
        supplement(&mut parsed, given, catalogue, &reading.policy);
    }
    parsed
}

/// Adds the native calls that came with a text to the calls in the text.
pub(super) fn supplement(
    parsed: &mut Parsed,
    given: &Value,
    catalogue: &Catalogue,
    policy: &Policy,
) {
    let given = native::read(given);
    parsed.diagnostics.extend(given.remarks);
    let calls = native::typed(&given.calls, catalogue, policy);
    native::supplement(parsed, calls);
}

fn names_no_tool(code: ProblemCode) -> bool {
    matches!(
        code,
        ProblemCode::UnknownTool
            | ProblemCode::ToolNotAvailable
            | ProblemCode::ToolRemoved
            | ProblemCode::EmptyAction
    )
}

#[cfg(test)]
mod tests {
    use call_catalogue::{Dialect, Tool};
    use call_text::FinishReason;
    use serde_json::json;

    use super::*;

    fn catalogue() -> Catalogue {
        let parameters = json!({"properties": {"query": {"type": "string"}}});
        Catalogue::new(vec![Tool::new("kb:Query", "", parameters)], vec![]).unwrap()
    }

    fn read(native: Value) -> Parsed {
        let reading = TextOptions {
            tools: ToolSource::Caller(catalogue()),
            policy: Policy::default(),
            finish_reason: FinishReason::ToolCalls,
            untrusted: Vec::new(),
            native: Some(native),
        };
        parse("I look.", &reading, &catalogue())
    }

    #[test]
    fn what_render_call_writes_natively_is_read_back() {
        let Value::Object(arguments) = json!({"query": "tavern"}) else {
            unreachable!()
        };
        let written = render_call("kb:Query", &arguments, Dialect::Native, &catalogue()).unwrap();
        let parsed = read(serde_json::from_str(&written).unwrap());
        let ready: Vec<_> = parsed.ready_calls().map(|call| &call.arguments).collect();
        assert_eq!(ready, [&arguments]);
        assert_eq!(parsed.diagnostics, []);
    }

    #[test]
    fn tool_calls_of_no_known_shape_are_remarked_on() {
        for given in [
            json!("kb:Query"),
            json!({"kb:Query": {"query": "tavern"}}),
            json!([{"functionCall": {"name": "kb:Query", "args": {}}}]),
        ] {
            let parsed = read(given.clone());
            assert_eq!(parsed.calls.len(), 0, "{given}");
            let codes: Vec<_> = parsed
                .diagnostics
                .iter()
                .map(|remark| remark.code.as_str())
                .collect();
            assert_eq!(codes, ["native_call_unreadable"], "{given}");
        }
    }
}
