//! Endpoints of models that misbehave, one file each in `models`, and their expected outcomes
//! through ModelService, `core:LLM` and an agent alike.

mod endpoint;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, ensure};
use contracts::tavern::agent::v1::generate_response::Piece;
use contracts::tavern::agent::v1::start_turn_request::Input;
use contracts::tavern::agent::v1::{GenerateRequest, StartTurnRequest};
use contracts::tavern::common::v1::run_event::Kind;
use contracts::tavern::common::v1::{ChatMessage, ChatRole};
use contracts::tavern::workflow::v1::StartRunRequest;
use contracts::tavern::workflow::v1::start_run_request::Target;
use futures::{StreamExt, stream};
use serde::Deserialize;
use serde_json::{Value, json};
use testkit::{Followed, Stack, collect, repository};

use endpoint::{PlayedEndpoint, Reply};

/// The least number of files.
const LEAST: usize = 60;

/// The number of files that are played at once.
const AT_ONCE: usize = 32;

/// The question.
const QUESTION: &str = "Keep a note and report.";

/// A file: an endpoint, and the expected outcome of a request.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    /// The endpoint's behaviour, for people.
    #[serde(rename = "what")]
    _what: String,
    /// The wire: `openai` or `anthropic`.
    #[serde(default = "openai")]
    wire: String,
    /// Whether the tools are declared natively, so that native calls and their results go back.
    #[serde(default)]
    native: bool,
    /// Further settings of the model.
    #[serde(default)]
    settings: BTreeMap<String, Value>,
    /// The answers to the requests in order; the last repeats.
    replies: Vec<Reply>,
    /// The same of a spare model; there is none if this is empty.
    #[serde(default)]
    spare: Vec<Reply>,
    /// The outcome that must come of it.
    expect: Value,
    /// The difference from `expect` through ModelService, by key.
    #[serde(default)]
    generate: Value,
    /// The difference through `core:LLM`.
    #[serde(default)]
    workflow: Value,
    /// The difference through an agent.
    #[serde(default)]
    agent: Value,
}

fn openai() -> String {
    "openai".to_owned()
}

/// An outcome of asking, expected or reached.
#[derive(Debug, Default, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields)]
struct Outcome {
    /// The text of a success.
    text: Option<String>,
    /// The code of a failure.
    error: Option<String>,
    /// The calls: the dispatched ones, or through ModelService the native ones of the answer.
    calls: Vec<(String, Value)>,
    /// The number of requests to the endpoint, and to the spare one.
    requests: (usize, usize),
    /// Values of requests by pointers into the list of all.
    sent: BTreeMap<String, Value>,
}

impl Case {
    /// Returns the expected outcome in one way.
    fn expected(&self, differences: &Value) -> anyhow::Result<Outcome> {
        let mut expected = self.expect.clone();
        let fields = expected.as_object_mut().context("`expect` is no object")?;
        for (key, value) in differences.as_object().into_iter().flatten() {
            fields.insert(key.clone(), value.clone());
        }
        fields.retain(|_, value| !value.is_null());
        Ok(serde_json::from_value(expected)?)
    }
}

/// The stack, the endpoint and the cases of a play.
struct Stage {
    stack: Stack,
    endpoint: PlayedEndpoint,
    cases: BTreeMap<String, Case>,
    _deploy: tempfile::TempDir,
}

impl Stage {
    async fn set() -> anyhow::Result<Self> {
        let endpoint = PlayedEndpoint::start().await?;
        let cases = read_cases()?;
        let deploy = tempfile::tempdir()?;
        write_deploy(deploy.path(), &cases, &endpoint)?;
        let stack = Stack::builder().deploy(deploy.path()).start().await?;
        Ok(Self {
            stack,
            endpoint,
            cases,
            _deploy: deploy,
        })
    }

    /// Sends the request in every way; returns the differences from the expected outcome.
    async fn play(&self, name: &str, case: &Case) -> anyhow::Result<String> {
        let mut wrong = String::new();
        for (way, differences) in [
            ("generate", &case.generate),
            ("workflow", &case.workflow),
            ("agent", &case.agent),
        ] {
            let expected = case.expected(differences)?;
            self.endpoint.play(name, &case.replies);
            self.endpoint.play(&spare(name), &case.spare);
            let mut outcome = match way {
                "generate" => self.generate(name).await?,
                "workflow" => self.run_workflow(name, case).await?,
                _ => self.start_turn(name).await?,
            };
            let requests = self.endpoint.requests(name);
            outcome.requests = (requests.len(), self.endpoint.requests(&spare(name)).len());
            let all = Value::Array(requests);
            let sent = expected.sent.keys();
            let sent = sent.map(|pointer| (pointer.clone(), all.pointer(pointer).cloned()));
            outcome.sent = sent
                .map(|(pointer, value)| (pointer, value.unwrap_or_default()))
                .collect();
            if let (Some(code), Some(said)) = (&expected.error, &mut outcome.error)
                && way == "workflow"
                && said.contains(words(code))
            {
                said.clone_from(code);
            }
            if outcome != expected {
                writeln!(
                    wrong,
                    "{name}, {way}:\n  came {outcome:?}\n  not  {expected:?}"
                )?;
            }
        }
        Ok(wrong)
    }

    async fn generate(&self, name: &str) -> anyhow::Result<Outcome> {
        let request = GenerateRequest {
            model: name.to_owned(),
            messages: vec![ChatMessage {
                role: ChatRole::User.into(),
                text: QUESTION.to_owned(),
                ..ChatMessage::default()
            }],
            tools_json: json!([{"name": "Note", "parameters": {"type": "object"}}]).to_string(),
            ..GenerateRequest::default()
        };
        let mut pieces = self.stack.models().generate(request).await?.into_inner();
        let mut outcome = Outcome::default();
        let mut text = String::new();
        loop {
            match pieces.message().await {
                Ok(Some(response)) => match response.piece {
                    Some(Piece::Text(piece)) => text.push_str(&piece),
                    Some(Piece::End(end)) => {
                        outcome.calls = native_calls(&end.tool_calls_json)?;
                        outcome.text = Some(std::mem::take(&mut text));
                    }
                    _ => {}
                },
                Ok(None) => return Ok(outcome),
                Err(status) => {
                    let code = grpc_kit::metadata(&status).get("code").cloned();
                    outcome.error = Some(code.unwrap_or_else(|| status.to_string()));
                    return Ok(outcome);
                }
            }
        }
    }

    async fn run_workflow(&self, name: &str, case: &Case) -> anyhow::Result<Outcome> {
        let mut config =
            json!({"profileId": name, "prompt": QUESTION, "toolIds": ["Note", "Look"]});
        if case.native {
            config["dialect"] = "native".into();
        }
        let definition = json!({
            "nodes": [{"id": "llm", "type": "core:LLM", "configValues": config},
                      {"id": "out", "type": "core:GroupOutput"}],
            "edges": [{"source": "llm", "sourceHandle": "text", "target": "out", "targetHandle": "text"}],
            "interfaceOutputs": {"text": {"dataFlowType": "STRING"}},
        });
        let request = StartRunRequest {
            target: Some(Target::DefinitionJson(definition.to_string())),
            inputs_json: "{}".to_owned(),
            ..StartRunRequest::default()
        };
        let started = self.stack.workflow().start_run(request).await?.into_inner();
        let followed = self.follow(&started.run.unwrap_or_default().run_id).await?;
        outcome(
            &followed,
            |result| result["text"].clone(),
            |error| error.message.clone(),
        )
    }

    async fn start_turn(&self, name: &str) -> anyhow::Result<Outcome> {
        let request = StartTurnRequest {
            profile_id: name.to_owned(),
            input: Some(Input::UserMessage(QUESTION.to_owned())),
            ..StartTurnRequest::default()
        };
        let started = self.stack.agent().start_turn(request).await?.into_inner();
        let followed = self.follow(&started.run.unwrap_or_default().run_id).await?;
        outcome(&followed, Value::clone, |error| error.code.clone())
    }

    async fn follow(&self, run_id: &str) -> anyhow::Result<Followed> {
        collect(&self.stack.runs(), run_id, 0).await
    }
}

/// The words of a failure, by its code: `core:LLM` has one code for all of them.
fn words(code: &str) -> &'static str {
    match code {
        "model_broke_off" => "ended its answer with an error",
        "model_malformed" => "sent an invalid response",
        "model_not_an_api" => "answered with a web page",
        "model_stream_cut" => "the answer was cut off",
        "model_unfinished" => "is not whole",
        _ => "the endpoint answered",
    }
}

fn spare(name: &str) -> String {
    format!("{name}-spare")
}

/// Reads every file, by its name without the ending.
fn read_cases() -> anyhow::Result<BTreeMap<String, Case>> {
    let mut cases = BTreeMap::new();
    let only = std::env::var("MODEL_CASE").unwrap_or_default();
    for entry in std::fs::read_dir(repository().join("tests/e2e/models"))? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        if !name.contains(&only) {
            continue;
        }
        let case = serde_json::from_slice(&std::fs::read(&path)?);
        let case = case.with_context(|| path.display().to_string())?;
        cases.insert(name.into_owned(), case);
    }
    Ok(cases)
}

/// Writes a deploy directory with a model and an agent for each file, and two tools, of which `Look` is
/// read-only.
fn write_deploy(
    deploy: &Path,
    cases: &BTreeMap<String, Case>,
    endpoint: &PlayedEndpoint,
) -> anyhow::Result<()> {
    let mut models = String::new();
    for empty in ["agents", "models", "workflows", "plugins"] {
        std::fs::create_dir(deploy.join(empty))?;
    }
    for (name, case) in cases {
        let mut model = |name: &str, fallbacks: &[String]| -> anyhow::Result<()> {
            let (wire, url) = (&case.wire, endpoint.base_url(name));
            writeln!(
                models,
                "[models.{name:?}]\nprovider = {wire:?}\nmodel = \"m\""
            )?;
            writeln!(models, "base_url = {url:?}\nfallbacks = {fallbacks:?}")?;
            let settings = case.settings.iter();
            for (key, value) in settings.filter(|(key, _)| *key != "retries") {
                writeln!(models, "{key} = {value}")?;
            }
            let retries = case.settings.get("retries").unwrap_or(&json!(1)).clone();
            Ok(writeln!(models, "retries = {retries}")?)
        };
        let spare = (!case.spare.is_empty()).then(|| spare(name));
        model(name, spare.as_slice())?;
        if let Some(spare) = spare {
            model(&spare, &[])?;
        }
        let tools = if case.native { "both" } else { "text" };
        let profile = json!({
            "id": name, "name": name, "tool_ids_inventory": ["Note", "Look"],
            "custom_metadata": {"tavern": {"model": name, "tools": tools}},
        });
        let file = deploy.join("agents").join(format!("{name}.json"));
        std::fs::write(file, profile.to_string())?;
    }
    std::fs::write(deploy.join("agent-runtime.toml"), models)?;
    let plugin = deploy.join("plugins/notes");
    std::fs::create_dir_all(plugin.join("tools"))?;
    let manifest = "name: notes\ndisplayName: Notes\nversion: 1.0.0\ndescription: Keeps notes.\n\
                    tools:\n  entry: ./tools\n";
    std::fs::write(plugin.join("plugin.yaml"), manifest)?;
    for (id, parameter, read_only) in [("Note", "text", false), ("Look", "at", true)] {
        let tool = json!({
            "toolId": id, "displayName": id, "description": id, "version": "1.0.0",
            "handler": {"type": "external-script", "scriptPath": "done.py", "language": "python"},
            "parameters": {"type": "object", "properties": {parameter: {"type": "string"}}, "additionalProperties": false},
            "readOnly": read_only,
        });
        let file = plugin.join("tools").join(format!("{id}.tool.json"));
        std::fs::write(file, tool.to_string())?;
    }
    let script = "print('{\"status\": \"success\", \"result\": \"done\"}')\n";
    Ok(std::fs::write(plugin.join("done.py"), script)?)
}

/// Reads the native calls of an answer; arguments that are no JSON stay text.
fn native_calls(tool_calls_json: &str) -> anyhow::Result<Vec<(String, Value)>> {
    if tool_calls_json.is_empty() {
        return Ok(Vec::new());
    }
    let calls: Vec<Value> = serde_json::from_str(tool_calls_json)?;
    let calls = calls.iter().map(|call| {
        let function = &call["function"];
        let name = function["name"].as_str().unwrap_or_default().to_owned();
        let arguments = function["arguments"].as_str().unwrap_or_default();
        let arguments = serde_json::from_str(arguments).unwrap_or_else(|_| arguments.into());
        (name, arguments)
    });
    Ok(calls.collect())
}

/// Returns the outcome of a run.
fn outcome(
    followed: &Followed,
    text: fn(&Value) -> Value,
    error: fn(&contracts::tavern::common::v1::CallError) -> String,
) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::default();
    for event in &followed.events {
        if let Some(Kind::CallDispatched(call)) = &event.kind {
            let arguments = serde_json::from_str(&call.arguments_json)?;
            outcome.calls.push((call.tool_id.clone(), arguments));
        }
    }
    let ended = followed.run.outcome.clone().unwrap_or_default();
    match &ended.error {
        Some(failed) => outcome.error = Some(error(failed)),
        None => {
            let result: Value = serde_json::from_str(&ended.result_json)?;
            outcome.text = text(&result).as_str().map(str::to_owned);
        }
    }
    Ok(outcome)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_endpoint_that_misbehaves_comes_to_what_its_file_says() -> anyhow::Result<()> {
    let stage = Stage::set().await?;
    let played = stage.cases.iter().map(async |(name, case)| {
        let played = stage.play(name, case).await;
        played.unwrap_or_else(|error| format!("{name}: {error:#}\n"))
    });
    let wrong: String = stream::iter(played).buffered(AT_ONCE).collect().await;
    ensure!(wrong.is_empty(), "{wrong}");
    ensure!(std::env::var_os("MODEL_CASE").is_some() || stage.cases.len() >= LEAST);
    Ok(())
}
