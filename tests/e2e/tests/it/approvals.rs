//! Consents bind to the target of a call (rules G806, R401): when the script, the workflow, the
//! agent or the server behind a tool is replaced, people are asked again.

use std::path::Path;

use anyhow::{Context, bail, ensure};
use contracts::tavern::common::v1::{ApprovalRequested, CallResult, run_event::Kind};
use contracts::tavern::registry::v1::approval_service_client::ApprovalServiceClient;
use contracts::tavern::registry::v1::{
    ApprovalVerdict, CallToolRequest, CallToolResponse, DecideApprovalRequest, GetApprovalRequest,
    PutBackendRequest, PutToolRequest, call_tool_response::Record,
};
use contracts::tavern::workflow::v1::PutWorkflowRequest;
use serde_json::{Value, json};
use testkit::{APPROVER_KEY, PythonServer, Stack};
use tonic::Streaming;

use crate::deliberation::put;

/// The thing that is exchanged behind the tool that is called.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Exchanged {
    Script,
    FileBesideTheScript,
    Workflow,
    Profile,
    Server,
    /// Each of them is written again as it is.
    Nothing,
}

/// A deploy directory with a plugin, whose tools people approve.
fn prepare(deploy: &Path) -> anyhow::Result<()> {
    for directory in ["agents", "models", "workflows", "plugins/demo/tools"] {
        std::fs::create_dir_all(deploy.join(directory))?;
    }
    let plugin = deploy.join("plugins/demo");
    std::fs::write(
        plugin.join("plugin.yaml"),
        "name: demo\ntools:\n  entry: tools\n",
    )?;
    std::fs::write(plugin.join("run.py"), "import words; print(words.number)")?;
    std::fs::write(plugin.join("words.py"), "number = 1")?;
    let implementation = json!({"type": "script", "command": "python run.py"});
    for (id, read_only) in [("demo:run", false), ("demo:read", true)] {
        let path = plugin.join(format!("tools/{}.tool.json", &id[5..]));
        let mut tool = tool(id, &implementation, true);
        tool["readOnly"] = json!(read_only);
        std::fs::write(path, tool.to_string())?;
    }
    let tools = ["demo:*", "workflow:*", "agent:*", "bound.*"];
    let rules = json!({"rules": [{"id": "all", "tools": tools, "action": "ask",
                                  "approvers": {"role": "storykeeper"}}]});
    Ok(std::fs::write(
        deploy.join("approvals.json"),
        rules.to_string(),
    )?)
}

fn tool(id: &str, implementation: &Value, with_parameters: bool) -> Value {
    let mut tool = json!({"id": id, "description": "Does it.", "implementation": implementation});
    if with_parameters {
        tool["parameters"] = json!({"type": "object", "properties": {}});
    }
    tool
}

async fn put_workflow(stack: &Stack, text: &str) -> anyhow::Result<()> {
    let file = json!({
        "name": "Say",
        "nodes": [
            {"id": "out", "type": "core:GroupOutput", "position": {"x": 9, "y": 0}},
            {"id": "say", "type": "core:TextMerge", "position": {"x": 0, "y": 0},
             "configValues": {"separator": text}, "inputValues": {"text_inputs": ["x", "y"]}},
        ],
        "edges": [],
        "interfaceInputs": {},
        "interfaceOutputs": {},
    });
    let request = PutWorkflowRequest {
        workflow_id: "say".to_owned(),
        definition_json: file.to_string(),
        ..PutWorkflowRequest::default()
    };
    stack.workflow().put_workflow(request).await?;
    Ok(())
}

async fn put_profile(stack: &Stack, prompt: &str) -> anyhow::Result<()> {
    let profile = json!({
        "id": "helper",
        "persona": prompt,
        "custom_metadata": {"tavern": {"model": "none"}},
    });
    put(stack, &profile).await
}

async fn put_server(stack: &Stack, server: &PythonServer) -> anyhow::Result<()> {
    let request = PutBackendRequest {
        name: "ledger".to_owned(),
        endpoint: server.uri(),
        ..PutBackendRequest::default()
    };
    stack.registry().put_backend(request).await?;
    Ok(())
}

struct World {
    stack: Stack,
    deploy: tempfile::TempDir,
    servers: [PythonServer; 2],
}

impl World {
    async fn new() -> anyhow::Result<Self> {
        let deploy = tempfile::tempdir()?;
        prepare(deploy.path())?;
        let stack = Stack::builder().deploy(deploy.path()).start().await?;
        put_workflow(&stack, "a").await?;
        put_profile(&stack, "You help.").await?;
        let start = async |name: &str| {
            let out = stack.directory().join(name);
            std::fs::create_dir(&out)?;
            PythonServer::start("ledger_backend.py", &out.join("ledger.jsonl"), &out).await
        };
        let servers = [start("first").await?, start("second").await?];
        put_server(&stack, &servers[0]).await?;
        let workflow = json!({"type": "workflow", "workflowId": "say"});
        let method = json!({"type": "service", "service": "ledger",
                            "method": "tavern.test.v1.Ledger/Append"});
        for (id, implementation, with_parameters) in [
            ("bound.workflow", &workflow, false),
            ("bound.workflow_with_parameters", &workflow, true),
            ("bound.server", &method, true),
        ] {
            let request = PutToolRequest {
                definition_json: tool(id, implementation, with_parameters).to_string(),
                ..PutToolRequest::default()
            };
            stack.registry().put_tool(request).await?;
        }
        Ok(Self {
            stack,
            deploy,
            servers,
        })
    }

    /// Exchanges one thing, and kills and restarts the services if they read it only then.
    async fn exchange(&mut self, exchanged: Exchanged) -> anyhow::Result<()> {
        let plugin = self.deploy.path().join("plugins/demo");
        match exchanged {
            Exchanged::Script => {
                let script = "import words; print(2 + words.number)";
                std::fs::write(plugin.join("run.py"), script)?;
                self.stack.restart().await
            }
            Exchanged::FileBesideTheScript => {
                std::fs::write(plugin.join("words.py"), "number = 2")?;
                self.stack.restart().await
            }
            Exchanged::Workflow => put_workflow(&self.stack, "b").await,
            Exchanged::Profile => put_profile(&self.stack, "You hinder.").await,
            Exchanged::Server => put_server(&self.stack, &self.servers[1]).await,
            Exchanged::Nothing => {
                put_workflow(&self.stack, "a").await?;
                put_profile(&self.stack, "You help.").await?;
                put_server(&self.stack, &self.servers[0]).await?;
                self.stack.restart().await
            }
        }
    }

    /// Calls a tool, and approves the call for its conversation if it needs an approval. Returns
    /// the result of the call and whether it needed one.
    async fn call(&self, tool: &str, effect: &str) -> anyhow::Result<(CallResult, bool)> {
        let arguments = match tool {
            "agent:helper" => json!({"message": "Help."}),
            _ => json!({}),
        };
        let request = CallToolRequest {
            tool_id: tool.to_owned(),
            arguments_json: arguments.to_string(),
            effect_id: effect.to_owned(),
            conversation_id: "c".to_owned(),
            ..CallToolRequest::default()
        };
        let mut stream = self.stack.calls().call_tool(request).await?.into_inner();
        let asked = match next(&mut stream).await? {
            Next::Result(result) => return Ok((*result, false)),
            Next::Asked(asked) => asked,
        };
        let verdict = ApprovalVerdict::Approve;
        decide(&self.stack, asked.approval_id, verdict, true).await?;
        match next(&mut stream).await? {
            Next::Result(result) => Ok((*result, true)),
            Next::Asked(again) => bail!("it is asked for twice: {again:?}"),
        }
    }
}

enum Next {
    Asked(ApprovalRequested),
    Result(Box<CallResult>),
}

async fn next(stream: &mut Streaming<CallToolResponse>) -> anyhow::Result<Next> {
    while let Some(response) = stream.message().await? {
        match response.record {
            Some(Record::Result(result)) => return Ok(Next::Result(Box::new(result))),
            Some(Record::Event(event)) => {
                if let Some(Kind::ApprovalRequested(asked)) = event.kind {
                    return Ok(Next::Asked(asked));
                }
            }
            None => {}
        }
    }
    bail!("the stream ended without a result")
}

/// Decides an approval as the tests' approver.
pub(crate) async fn decide(
    stack: &Stack,
    approval_id: String,
    verdict: ApprovalVerdict,
    remember: bool,
) -> anyhow::Result<()> {
    let settings = grpc_kit::ClientSettings::to(stack.address());
    let mut approvals = ApprovalServiceClient::new(grpc_kit::remote(&settings)?.outermost());
    let found = GetApprovalRequest {
        approval_id: approval_id.clone(),
    };
    let found = approvals.get_approval(found).await?.into_inner().approval;
    let mut request = tonic::Request::new(DecideApprovalRequest {
        approval_id,
        arguments_digest: found.context("the approval is there")?.arguments_digest,
        verdict: verdict.into(),
        remember,
        ..DecideApprovalRequest::default()
    });
    let bearer = format!("Bearer {APPROVER_KEY}").parse()?;
    request.metadata_mut().insert("authorization", bearer);
    approvals.decide_approval(request).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g806_a_consent_that_is_remembered_ends_with_an_exchange_of_what_the_call_runs()
-> anyhow::Result<()> {
    let mut world = World::new().await?;
    let tools = [
        ("demo:run", Exchanged::Script),
        ("demo:read", Exchanged::FileBesideTheScript),
        ("workflow:say", Exchanged::Workflow),
        ("bound.workflow", Exchanged::Workflow),
        ("bound.workflow_with_parameters", Exchanged::Workflow),
        ("agent:helper", Exchanged::Profile),
        ("bound.server", Exchanged::Server),
    ];
    let mut effects = 0;
    let mut effect = || {
        effects += 1;
        format!("e{effects}")
    };
    for (tool, _) in tools {
        let (result, asked) = world.call(tool, &effect()).await?;
        ensure!(asked, "{tool} is asked for: {result:?}");
    }
    world.exchange(Exchanged::Nothing).await?;
    for (tool, _) in tools {
        let (result, asked) = world.call(tool, &effect()).await?;
        ensure!(!asked, "{tool} is as it was approved: {result:?}");
    }
    for (tool, exchanged) in tools {
        // The exchange before may have ended this consent too.
        world.call(tool, &effect()).await?;
        world.exchange(exchanged).await?;
        let (result, asked) = world.call(tool, &effect()).await?;
        ensure!(asked, "{tool} after {exchanged:?}: {result:?}");
        let (result, asked) = world.call(tool, &effect()).await?;
        ensure!(!asked, "{tool} was approved again: {result:?}");
        put_workflow(&world.stack, "a").await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_is_bound_to_a_workflow_is_replaced_under_the_etag_that_it_is_shown_with()
-> anyhow::Result<()> {
    let world = World::new().await?;
    let get = || async {
        let request = contracts::tavern::registry::v1::GetToolRequest {
            tool_id: "bound.workflow".to_owned(),
        };
        let got = world.stack.registry().get_tool(request).await?.into_inner();
        anyhow::Ok(got.tool.context("the tool is there")?.etag)
    };
    let put = |etag: String, description: &str| {
        let workflow = json!({"type": "workflow", "workflowId": "say"});
        let mut definition = tool("bound.workflow", &workflow, false);
        definition["description"] = json!(description);
        let request = PutToolRequest {
            definition_json: definition.to_string(),
            etag,
            ..PutToolRequest::default()
        };
        let mut registry = world.stack.registry();
        async move { registry.put_tool(request).await }
    };
    let first = get().await?;
    let answer = put(first.clone(), "Does it well.").await?.into_inner();
    let second = get().await?;
    ensure!(answer.tool.context("the tool")?.etag == second && second != first);
    put_workflow(&world.stack, "b").await?;
    let stale = put(second, "Does it better.").await;
    ensure!(stale.is_err_and(|status| status.code() == tonic::Code::Aborted));
    put(get().await?, "Does it better.").await?;
    Ok(())
}
