//! `tavern tools`.

use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Subcommand;
use contracts::tavern::common::v1::{CallStatus, Dialect};
use contracts::tavern::gateway::v1::gateway_service_client::GatewayServiceClient;
use contracts::tavern::gateway::v1::{GrammarMode, RenderGrammarRequest, ToolScope};
use contracts::tavern::registry::v1::call_service_client::CallServiceClient;
use contracts::tavern::registry::v1::call_tool_response::Record;
use contracts::tavern::registry::v1::tool_registry_service_client::ToolRegistryServiceClient;
use contracts::tavern::registry::v1::tool_search_service_client::ToolSearchServiceClient;
use contracts::tavern::registry::v1::{
    AvailabilityScope, AvailabilityVerdict, CallToolRequest, ExplainAvailabilityRequest,
    GetToolRequest, ListToolsRequest, SearchToolsRequest, Tool, ToolAvailability,
};

use super::{Remote, json, list, print, print_table, refusal, words};
use crate::timeline::{Style, Timeline, decide_by, name, output_text};

/// The commands about tools.
#[derive(Subcommand)]
pub enum Command {
    /// List tools by id.
    List,
    /// Find tools by words, the best match first.
    Search {
        /// The words, or an id.
        #[arg(required = true)]
        words: Vec<String>,
    },
    /// Show a tool: its description, its effects and the schema of its arguments.
    Show {
        /// The id or alias of the tool.
        tool_id: String,
    },
    /// Print a grammar that restricts a model to well-formed calls.
    Grammar {
        /// The tools; without any, the tools of the agent, or all.
        tool_ids: Vec<String>,
        /// The agent whose inventory counts.
        #[arg(long)]
        agent: Option<String>,
        /// The dialect.
        #[arg(long, default_value = "action", value_parser = words::parser(Dialect::as_str_name))]
        dialect: Dialect,
        /// Require a call in each answer.
        #[arg(long)]
        call: bool,
    },
    /// Explain why a tool can or cannot be called.
    Explain {
        /// The id or alias of the tool.
        tool_id: String,
        /// The agent that would call it, by its profile.
        #[arg(long, conflicts_with = "run")]
        agent: Option<String>,
        /// The turn that would call it, with the profile that it was started with.
        #[arg(long)]
        run: Option<String>,
        /// The workflow whose models would call it.
        #[arg(long)]
        workflow: Option<String>,
        /// The node of the workflow that lists the tools.
        #[arg(long, requires = "workflow")]
        node: Option<String>,
        /// The principal that would call it, for an administrator; without it, the caller.
        #[arg(long)]
        principal: Option<String>,
    },
    /// Call a tool once.
    Call {
        /// The id or alias of the tool.
        tool_id: String,
        /// The arguments: a JSON object.
        #[arg(default_value = "{}")]
        arguments: String,
        /// The effect id; the same id returns the recorded result instead of calling again.
        #[arg(long)]
        effect_id: Option<String>,
    },
}

type Registry = ToolRegistryServiceClient<grpc_kit::Outbound>;
type Calls = CallServiceClient<grpc_kit::Outbound>;

impl Command {
    pub(super) async fn execute(self, remote: &Remote) -> anyhow::Result<ExitCode> {
        let transport = remote.connect()?;
        let mut registry = Registry::new(transport.clone());
        match self {
            Self::List => list(&mut registry, remote.json).await,
            Self::Search { words } => {
                let client = ToolSearchServiceClient::new(transport);
                search(client, &words.join(" "), remote.json).await
            }
            Self::Show { tool_id } => {
                let response = registry.get_tool(GetToolRequest { tool_id }).await;
                let tool = response
                    .map_err(|status| refusal(&status))?
                    .into_inner()
                    .tool;
                show(&tool.context("the answer has no tool")?, remote.json)
            }
            Self::Grammar {
                tool_ids,
                agent,
                dialect,
                call,
            } => {
                let request = RenderGrammarRequest {
                    scope: Some(ToolScope {
                        profile_id: agent.unwrap_or_default(),
                        tool_ids,
                    }),
                    dialect: dialect.into(),
                    mode: match call {
                        true => GrammarMode::Call,
                        false => GrammarMode::Free,
                    } as i32,
                    ..RenderGrammarRequest::default()
                };
                let gateway = GatewayServiceClient::new(transport);
                grammar(gateway, request, remote.json).await
            }
            Self::Explain {
                tool_id,
                agent,
                run,
                workflow,
                node,
                principal,
            } => {
                let request = ExplainAvailabilityRequest {
                    tool_ids: vec![tool_id],
                    scope: Some(AvailabilityScope {
                        run_id: run.unwrap_or_default(),
                        profile_id: agent.unwrap_or_default(),
                        workflow_id: workflow.unwrap_or_default(),
                        node_path: node.unwrap_or_default(),
                    }),
                    principal: principal.unwrap_or_default(),
                };
                let response = registry.explain_availability(request).await;
                let response = response.map_err(|status| refusal(&status))?.into_inner();
                let tool = response.tools.into_iter().next();
                explain(&tool.context("the answer has no tool")?, remote.json)
            }
            Self::Call {
                tool_id,
                arguments,
                effect_id,
            } => {
                let request = CallToolRequest {
                    tool_id,
                    arguments_json: arguments,
                    effect_id: effect_id.unwrap_or_default(),
                    ..CallToolRequest::default()
                };
                call(&mut Calls::new(transport), request, remote.json).await
            }
        }
    }
}

/// The head of a table of tools.
const HEAD: [&str; 4] = ["TOOL", "EFFECTS", "SHARED", "DESCRIPTION"];

fn row(tool: &Tool) -> [String; 4] {
    let description = tool.description.lines().next().unwrap_or_default();
    let shared = if tool.shared { "shared" } else { "" };
    [
        tool.tool_id.clone(),
        effects(tool),
        shared.to_owned(),
        description.to_owned(),
    ]
}

async fn list(registry: &mut Registry, as_json: bool) -> anyhow::Result<ExitCode> {
    list::print_all(as_json, HEAD, row, async |page_token| {
        let request = ListToolsRequest {
            page_token,
            ..ListToolsRequest::default()
        };
        let page = registry.list_tools(request).await?.into_inner();
        Ok((page.tools, page.next_page_token))
    })
    .await?;
    Ok(ExitCode::SUCCESS)
}

async fn search(
    mut client: ToolSearchServiceClient<grpc_kit::Outbound>,
    words: &str,
    as_json: bool,
) -> anyhow::Result<ExitCode> {
    let request = SearchToolsRequest {
        query: words.to_owned(),
        limit: 0,
    };
    list::print_all(as_json, HEAD, row, async |_| {
        let found = client.search_tools(request.clone()).await?.into_inner();
        Ok((found.tools, String::new()))
    })
    .await?;
    Ok(ExitCode::SUCCESS)
}

fn show(tool: &Tool, as_json: bool) -> anyhow::Result<ExitCode> {
    if as_json {
        json::print_line(tool)?;
        return Ok(ExitCode::SUCCESS);
    }
    let schema: serde_json::Value = serde_json::from_str(&tool.parameters_json)?;
    print(&format!(
        "{}   ({}, {})\n\n{}\n\n{}\n",
        tool.tool_id,
        origin(tool),
        effects(tool),
        tool.description,
        serde_json::to_string_pretty(&schema)?
    ));
    Ok(ExitCode::SUCCESS)
}

/// Returns the origin of a tool, such as `builtin` or `plugin x`.
fn origin(tool: &Tool) -> String {
    let origin = name(tool.origin().as_str_name(), "TOOL_ORIGIN_");
    format!("{origin} {}", tool.plugin).trim_end().to_owned()
}

/// Prints a grammar, after the rules that it does not enforce.
async fn grammar(
    mut gateway: GatewayServiceClient<grpc_kit::Outbound>,
    request: RenderGrammarRequest,
    as_json: bool,
) -> anyhow::Result<ExitCode> {
    let response = gateway.render_grammar(request).await;
    let grammar = response.map_err(|status| refusal(&status))?.into_inner();
    if as_json {
        json::print_line(&grammar)?;
        return Ok(ExitCode::SUCCESS);
    }
    // Comment lines, which a reader of the grammar skips; a schema enforces every rule.
    for left in grammar.unenforced {
        print(&format!(
            "# not enforced: {} {}\n",
            left.tool_id, left.pointer
        ));
    }
    for missing in grammar.missing_tool_ids {
        print(&format!("# no such tool: {missing}\n"));
    }
    print(&format!("{}\n", grammar.text.trim_end()));
    Ok(ExitCode::SUCCESS)
}

/// Prints the verdict of each layer; fails if the tool cannot be called.
fn explain(tool: &ToolAvailability, as_json: bool) -> anyhow::Result<ExitCode> {
    let available = tool.verdict() == AvailabilityVerdict::Available;
    if as_json {
        json::print_line(tool)?;
    } else {
        let mut rows = vec![["LAYER", "", "DECIDED BY"].map(str::to_owned).to_vec()];
        rows.extend(tool.layers.iter().map(|verdict| {
            let passes = if verdict.passes { "passes" } else { "blocks" };
            vec![
                name(verdict.layer().as_str_name(), "AVAILABILITY_LAYER_"),
                passes.to_owned(),
                verdict.document.clone(),
            ]
        }));
        let verdict = name(tool.verdict().as_str_name(), "AVAILABILITY_VERDICT_");
        print(&format!("{}: {verdict}\n\n", tool.tool_id));
        print_table(&rows, None);
        for then in &tool.then {
            print(&format!("\nThen {then}.\n"));
        }
        if !tool.remedy.is_empty() {
            print(&format!("\n{}\n", tool.remedy));
        }
    }
    Ok(match available {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

async fn call(
    calls: &mut Calls,
    request: CallToolRequest,
    as_json: bool,
) -> anyhow::Result<ExitCode> {
    let stream = calls.call_tool(request).await;
    let mut stream = stream.map_err(|status| refusal(&status))?.into_inner();
    let mut timeline = Timeline::new(Style::of_stdout());
    while let Some(response) = stream.message().await.map_err(|status| refusal(&status))? {
        if as_json {
            json::print_line(&response)?;
        }
        match response.record {
            Some(Record::Event(event)) if !as_json => print(&timeline.event(&event)),
            Some(Record::Result(result)) => {
                let succeeded = result.status() == CallStatus::Succeeded;
                if !as_json {
                    let error = result.error.clone().unwrap_or_default();
                    print(&match succeeded {
                        true => format!("{}\n", output_text(&result)),
                        false => format!("{} ({})\n", timeline.message(&error), error.code),
                    });
                    if result.status() == CallStatus::InDoubt && !result.effect_id.is_empty() {
                        let command = decide_by(&result.effect_id, false);
                        print(&format!("decide by: {command}\n"));
                    }
                }
                return Ok(match succeeded {
                    true => ExitCode::SUCCESS,
                    false => ExitCode::FAILURE,
                });
            }
            _ => {}
        }
    }
    bail!("the connection ended before the call; with `--effect-id` it can be asked for again")
}

/// Returns the declared effects of a tool.
fn effects(tool: &Tool) -> String {
    let declared = [
        (tool.read_only, "read-only"),
        (tool.idempotent && !tool.read_only, "idempotent"),
        (tool.destructive, "destructive"),
    ];
    let words: Vec<&str> = declared
        .into_iter()
        .filter_map(|(declared, word)| declared.then_some(word))
        .collect();
    match words.is_empty() {
        true => "side effects".to_owned(),
        false => words.join(", "),
    }
}
