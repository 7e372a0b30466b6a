//! A ledger that every test of effects shares: a backend in a process of its own that remembers
//! every call durably before it answers.

use std::collections::HashMap;
use std::path::PathBuf;

use contracts::tavern::common::v1::{RunEvent, run_event::Kind};
use contracts::tavern::registry::v1::{PutBackendRequest, PutToolRequest, StartCallRequest};
use contracts::tavern::workflow::v1::PutWorkflowRequest;
use grpc_kit::ServiceName;
use serde_json::{Value, json};
use testkit::{Certificates, PythonServer, Stack, eventually};

/// A stack with a ledger whose tools it knows.
pub(crate) struct World {
    pub(crate) stack: Stack,
    /// The address of the ledger.
    pub(crate) endpoint: String,
    _ledger: PythonServer,
    out: PathBuf,
}

impl World {
    pub(crate) async fn new(stack: Stack) -> anyhow::Result<Self> {
        let out = stack.directory().join("ledger.jsonl");
        let ledger = PythonServer::start("ledger_backend.py", &out, stack.directory()).await?;
        let endpoint = ledger.uri();
        Self::with(stack, ledger, endpoint).await
    }

    /// A ledger at an `https` address, with the certificate that the gateway would have.
    pub(crate) async fn encrypted(stack: Stack, made: &Certificates) -> anyhow::Result<Self> {
        let out = stack.directory().join("ledger.jsonl");
        let [certificate, key] = made.pair(ServiceName::Gateway);
        let pair = ["--certificate", &certificate, "--key", &key];
        let ledger = PythonServer::start_with("ledger_backend.py", &out, stack.directory(), &pair);
        let ledger = ledger.await?;
        let endpoint = ledger.uri().replace("http://", "https://");
        Self::with(stack, ledger, endpoint).await
    }

    async fn with(stack: Stack, ledger: PythonServer, endpoint: String) -> anyhow::Result<Self> {
        let out = stack.directory().join("ledger.jsonl");
        let mut registry = stack.registry();
        let methods = registry
            .put_backend(backend(&endpoint))
            .await?
            .into_inner()
            .backend
            .unwrap_or_default()
            .methods;
        assert!(
            methods.contains(&"tavern.test.v1.Ledger/Append".to_owned()),
            "{methods:?}"
        );
        let tools = [
            ("ledger.append", false, 60_000),
            ("ledger.append_idempotent", true, 60_000),
            ("ledger.append_in_haste", false, 150),
        ];
        for (id, idempotent, timeout_ms) in tools {
            let definition_json = append_tool(id, idempotent, timeout_ms).to_string();
            registry
                .put_tool(PutToolRequest {
                    definition_json,
                    ..Default::default()
                })
                .await?;
        }
        Ok(Self {
            stack,
            endpoint,
            _ledger: ledger,
            out,
        })
    }

    /// Stores a workflow.
    pub(crate) async fn put_workflow(&self, id: &str, definition: &Value) -> anyhow::Result<()> {
        let put = PutWorkflowRequest {
            workflow_id: id.into(),
            definition_json: definition.to_string(),
            ..Default::default()
        };
        self.stack.workflow().put_workflow(put).await?;
        Ok(())
    }

    /// Every effect that happened with `note`.
    pub(crate) fn effects(&self, note: &str) -> anyhow::Result<Vec<Value>> {
        let lines = std::fs::read_to_string(&self.out)?;
        let all: Result<Vec<Value>, _> = lines.lines().map(serde_json::from_str).collect();
        Ok(all?
            .into_iter()
            .filter(|entry| entry["note"] == note)
            .collect())
    }

    /// Returns the ids of all effects that happened, by their notes.
    pub(crate) fn effects_by_note(&self) -> anyhow::Result<HashMap<String, Vec<String>>> {
        let mut effects: HashMap<String, Vec<String>> = HashMap::new();
        for line in std::fs::read_to_string(&self.out)?.lines() {
            let entry: Value = serde_json::from_str(line)?;
            let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
            let of_note = effects.entry(text("note")).or_default();
            of_note.push(text("effect_id"));
        }
        Ok(effects)
    }

    /// Returns a probe for whether an effect has happened.
    pub(crate) fn happened(&self) -> impl Fn(&str) -> bool + Send + 'static {
        let out = self.out.clone();
        move |effect_id| {
            let lines = std::fs::read_to_string(&out).unwrap_or_default();
            let mut entries = lines
                .lines()
                .filter_map(|line| serde_json::from_str(line).ok());
            entries.any(|entry: Value| entry["effect_id"] == effect_id)
        }
    }

    /// Leaves calls in doubt that no run made, each with its effect id as its note: Tavern is killed after
    /// they took effect, and started again.
    pub(crate) async fn leave_in_doubt(&mut self, effect_ids: &[&str]) -> anyhow::Result<()> {
        for effect_id in effect_ids {
            let arguments = json!({ "key": "k", "note": effect_id, "delay_ms": 30_000 });
            let request = StartCallRequest {
                tool_id: "ledger.append".into(),
                arguments_json: arguments.to_string(),
                effect_id: (*effect_id).into(),
                ..Default::default()
            };
            self.stack.calls().start_call(request).await?;
            self.await_effect(effect_id).await?;
        }
        self.stack.kill()?;
        self.stack.restart().await
    }

    /// Waits until an effect with `note` has happened.
    pub(crate) async fn await_effect(&self, note: &str) -> anyhow::Result<()> {
        eventually("the effect to happen", || async {
            self.effects(note)
                .ok()
                .filter(|effects| !effects.is_empty())
                .map(drop)
        })
        .await
    }
}

/// Registers the ledger at an address.
pub(crate) fn backend(endpoint: &str) -> PutBackendRequest {
    PutBackendRequest {
        name: "ledger".to_owned(),
        endpoint: endpoint.to_owned(),
        ..PutBackendRequest::default()
    }
}

fn append_tool(id: &str, idempotent: bool, timeout_ms: u32) -> Value {
    json!({
        "id": id,
        "description": "Appends a note to the ledger.",
        "idempotent": idempotent,
        "implementation": {
            "type": "service",
            "service": "ledger",
            "method": "tavern.test.v1.Ledger/Append",
            "timeout": timeout_ms
        },
        "parameters": {
            "type": "object",
            "properties": {
                "key": { "type": "string" },
                "note": { "type": "string" },
                "delay_ms": { "type": "integer" }
            },
            "required": ["key", "note"]
        }
    })
}

/// A block that calls an appending tool.
pub(crate) fn append(tool: &str, note: &str, delay_ms: u32) -> String {
    format!(
        "<ACTION><{tool}><key>k</key><note>{note}</note><delay_ms>{delay_ms}</delay_ms></{tool}></ACTION>"
    )
}

/// Returns whether a call left.
pub(crate) fn dispatched(event: &RunEvent) -> bool {
    matches!(event.kind, Some(Kind::CallDispatched(_)))
}

/// Three calls in a chain: two quick calls of an ordinary tool, then a slow call of `last`.
pub(crate) fn chain(last: &str) -> Value {
    let call = |tool: &str, note: &str, delay: u32| json!({ "tool_id": tool, "arguments": { "key": "k", "note": note, "delay_ms": delay } });
    let node = |id: &str, values: Value| json!({ "id": id, "type": "core:ExecuteTool", "inputValues": values });
    json!({
        "name": "chain",
        "nodes": [
            { "id": "in", "type": "core:GroupInput" },
            node("first", call("ledger.append", "first", 0)),
            node("second", call("ledger.append", "second", 0)),
            node("third", call(last, "third", 3_000)),
            { "id": "out", "type": "core:GroupOutput" }
        ],
        "edges": [
            { "id": "e1", "source": "first", "sourceHandle": "status", "target": "second", "targetHandle": "key" },
            { "id": "e2", "source": "second", "sourceHandle": "status", "target": "third", "targetHandle": "key" },
            { "id": "e3", "source": "third", "sourceHandle": "result", "target": "out", "targetHandle": "done" }
        ],
        "interfaceInputs": {},
        "interfaceOutputs": { "done": { "dataFlowType": "WILDCARD" } }
    })
}
