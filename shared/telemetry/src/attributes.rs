//! Every attribute key.
//!
//! The names follow OpenTelemetry's semantic conventions, which still move for generative models;
//! names that the conventions lack begin with `tavern.`. In a span or event macro a constant is
//! used in braces: `tracing::info!({ TOOL_NAME } = tool, "called")`.

/// The RPC system; always `grpc`.
pub const RPC_SYSTEM: &str = "rpc.system";
/// The full name of the gRPC service, package included.
pub const RPC_SERVICE: &str = "rpc.service";
/// The name of the gRPC method without its service.
pub const RPC_METHOD: &str = "rpc.method";
/// The gRPC status code as a number.
pub const RPC_STATUS_CODE: &str = "rpc.grpc.status_code";
/// The address of the peer without its port; `local` in process.
pub const PEER_ADDRESS: &str = "network.peer.address";

/// The operation on a model, tool or agent: `chat`, `execute_tool`, `invoke_agent` or
/// `invoke_workflow`.
pub const OPERATION_NAME: &str = "gen_ai.operation.name";
/// The requested model.
pub const REQUEST_MODEL: &str = "gen_ai.request.model";
/// The provider of the model, such as `openai`.
pub const PROVIDER_NAME: &str = "gen_ai.provider.name";
/// The model's reasons to stop.
pub const RESPONSE_FINISH_REASONS: &str = "gen_ai.response.finish_reasons";
/// Tokens of the request.
pub const USAGE_INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
/// Tokens of the answer.
pub const USAGE_OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
/// The tool's id.
pub const TOOL_NAME: &str = "gen_ai.tool.name";
/// The id of the call: its effect id.
pub const TOOL_CALL_ID: &str = "gen_ai.tool.call.id";
/// The id of the agent profile.
pub const AGENT_ID: &str = "gen_ai.agent.id";
/// The id of the workflow.
pub const WORKFLOW_NAME: &str = "gen_ai.workflow.name";
/// The id of the conversation.
pub const CONVERSATION_ID: &str = "gen_ai.conversation.id";

/// The kind of a failure: a gRPC code, a category of a tool failure.
pub const ERROR_TYPE: &str = "error.type";

/// The store of an event, by the name of its file.
pub const STORE: &str = "tavern.store";
/// The file of a certificate.
pub const TLS_FILE: &str = "tavern.tls.file";
/// Whether certificates that have changed are in force: `renewed` or `refused`.
pub const TLS_RENEWAL: &str = "tavern.tls.renewal";
/// The run of an event or span.
pub const RUN_ID: &str = "tavern.run.id";
/// The node of a workflow.
pub const NODE_ID: &str = "tavern.node.id";
/// The full type of a node.
pub const NODE_TYPE: &str = "tavern.node.type";
/// The runtime of a script.
pub const SCRIPT_RUNTIME: &str = "tavern.sandbox.runtime";
/// The kind of work in the sandbox: `script`, `stream`, `session` or `cell`.
pub const SANDBOX_WHAT: &str = "tavern.sandbox.what";
/// Whether an interpreter had waited for a script.
pub const WARM_START: &str = "tavern.sandbox.warm_start";
/// The state that a gauge counts: `running` or `waiting`, `ready` or `wanted`.
pub const SANDBOX_STATE: &str = "tavern.sandbox.state";
/// The verdict on a script.
pub const SANDBOX_VERDICT: &str = "tavern.sandbox.verdict";

/// The name of an issuer of tokens, as the settings give it; empty where it is unknown.
pub const ISSUER: &str = "tavern.issuer";
