//! The spans of agents, tools, workflows and models, named as the conventions name them.
//!
//! Each function makes a span below the current span. The macro name stays static; the real name
//! goes into `otel.name`.

use opentelemetry::trace::Status;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::attributes::{
    AGENT_ID, ERROR_TYPE, OPERATION_NAME, REQUEST_MODEL, TOOL_NAME, WORKFLOW_NAME,
};

/// Makes the span of a call of a tool.
pub fn execute_tool(tool: &str) -> Span {
    tracing::info_span!(
        "execute_tool",
        otel.name = format!("execute_tool {tool}"),
        { OPERATION_NAME } = "execute_tool",
        { TOOL_NAME } = tool,
    )
}

/// Makes the span of a turn of an agent.
pub fn invoke_agent(agent: &str) -> Span {
    tracing::info_span!(
        "invoke_agent",
        otel.name = format!("invoke_agent {agent}"),
        { OPERATION_NAME } = "invoke_agent",
        { AGENT_ID } = agent,
    )
}

/// Makes the span of a run of a workflow.
pub fn invoke_workflow(workflow: &str) -> Span {
    tracing::info_span!(
        "invoke_workflow",
        otel.name = format!("invoke_workflow {workflow}"),
        { OPERATION_NAME } = "invoke_workflow",
        { WORKFLOW_NAME } = workflow,
    )
}

/// Makes the span of a request to a model.
pub fn chat(model: &str) -> Span {
    tracing::info_span!(
        "chat",
        otel.name = format!("chat {model}"),
        otel.kind = "client",
        { OPERATION_NAME } = "chat",
        { REQUEST_MODEL } = model,
    )
}

/// Marks a span as failed. `kind` is of low cardinality, such as a category or a gRPC code.
pub fn fail(span: &Span, kind: &str, message: &str) {
    span.set_attribute(ERROR_TYPE, kind.to_owned());
    span.set_status(Status::error(message.to_owned()));
}

/// Sets a further attribute of a span.
pub fn set(span: &Span, key: &'static str, value: impl Into<opentelemetry::Value>) {
    span.set_attribute(key, value);
}
