//! Tools whose behaviour is fixed, in the place of the sandbox that would run them.

use std::{
    collections::HashMap,
    path::Path,
    sync::{Arc, Mutex},
};

use contracts::tavern::sandbox::v1::{
    ExecuteRequest, ExecuteResponse, ExecuteStreamRequest, ExecuteStreamResponse, Exited,
    GetIsolationRequest, GetIsolationResponse, ListRuntimesRequest, ListRuntimesResponse,
    OutputChunk, OutputStream, Verdict, execute_stream_request::Message,
    execute_stream_response::Event, script_sandbox_service_server::ScriptSandboxService,
    verdict::Kind,
};
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tonic::{Code, Request, Response, Status, codegen::BoxStream};

/// The behaviour of a tool.
#[derive(Clone)]
pub enum Behaviour {
    /// Returns this, by the arguments.
    Gives(Arc<dyn Fn(&Value) -> Value + Send + Sync>),
    /// Fails in its own terms.
    Fails(&'static str),
    /// Does not answer until it is released or cancelled.
    Hangs,
    /// Is lost after it began, so that its outcome is unknown.
    Unknown,
    /// Makes the registry return these statuses one after the other, and then the last again and
    /// again. For the double.
    Refuses(&'static [Code]),
}

impl std::fmt::Debug for Behaviour {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Gives(_) => "Gives",
            Self::Fails(_) => "Fails",
            Self::Hangs => "Hangs",
            Self::Unknown => "Unknown",
            Self::Refuses(_) => "Refuses",
        })
    }
}

/// The end of an execution of a tool.
#[derive(Clone, Debug)]
pub(crate) enum Played {
    Gave(Value),
    Failed(&'static str),
    Lost,
}

/// A tool as it is declared.
#[derive(Clone, Debug)]
pub(crate) struct Declared {
    pub(crate) id: String,
    pub(crate) schema: Value,
    pub(crate) read_only: bool,
    pub(crate) parallel_safe: bool,
}

#[derive(Debug, Default)]
struct State {
    declared: Vec<Declared>,
    behaviours: HashMap<String, Behaviour>,
    executed: Vec<String>,
}

/// Tools whose behaviour is fixed. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct PlayedTools {
    state: Arc<Mutex<State>>,
    /// Changes with each behaviour that changes.
    changed: Arc<watch::Sender<()>>,
}

impl PlayedTools {
    pub(crate) fn add(&self, id: &str, schema: &Value, behaviour: Behaviour) {
        let mut state = self.state.lock().unwrap();
        state.behaviours.insert(id.to_owned(), behaviour);
        state.declared.push(Declared {
            id: id.to_owned(),
            schema: schema.clone(),
            read_only: false,
            parallel_safe: false,
        });
    }

    pub(crate) fn declare(&self, id: &str, change: impl FnOnce(&mut Declared)) {
        let mut state = self.state.lock().unwrap();
        let mut declared = state.declared.iter_mut();
        change(declared.find(|tool| tool.id == id).expect("it was added"));
    }

    pub(crate) fn declared(&self) -> Vec<Declared> {
        self.state.lock().unwrap().declared.clone()
    }

    /// Returns the effects of the executions, in order.
    pub fn executed(&self) -> Vec<String> {
        self.state.lock().unwrap().executed.clone()
    }

    /// Lets a tool that hangs return this, now and later.
    pub fn release(&self, id: &str, output: Value) {
        let gives = Behaviour::Gives(Arc::new(move |_| output.clone()));
        let mut state = self.state.lock().unwrap();
        state.behaviours.insert(id.to_owned(), gives);
        drop(state);
        self.changed.send_replace(());
    }

    /// Returns the status with which the registry answers a request for a tool, if it does.
    pub(crate) fn refusal(&self, id: &str, effect_id: &str) -> Option<Code> {
        let mut state = self.state.lock().unwrap();
        let Some(Behaviour::Refuses(codes)) = state.behaviours.get(id).cloned() else {
            return None;
        };
        state.executed.push(effect_id.to_owned());
        let of_effect = state.executed.iter().filter(|id| *id == effect_id);
        Some(codes[of_effect.count().min(codes.len()) - 1])
    }

    /// Executes a tool. It is cancelled by no longer waiting for it.
    pub(crate) async fn play(&self, id: &str, effect_id: &str, arguments: &Value) -> Played {
        let mut changed = self.changed.subscribe();
        self.state
            .lock()
            .unwrap()
            .executed
            .push(effect_id.to_owned());
        loop {
            let behaviour = self.state.lock().unwrap().behaviours[id].clone();
            match behaviour {
                Behaviour::Gives(give) => return Played::Gave(give(arguments)),
                Behaviour::Fails(message) => return Played::Failed(message),
                Behaviour::Unknown | Behaviour::Refuses(_) => return Played::Lost,
                Behaviour::Hangs => changed.changed().await.expect("the tools are here"),
            }
        }
    }

    /// Writes the tools as a plugin into the directory of all plugins. The program of each is its number.
    pub(crate) fn write_plugin(&self, plugins: &Path) {
        let plugin = plugins.join("played");
        std::fs::create_dir_all(plugin.join("tools")).unwrap();
        let manifest = "name: played\ntools:\n  entry: tools\n";
        std::fs::write(plugin.join("plugin.yaml"), manifest).unwrap();
        std::fs::write(plugin.join("tool.py"), "# played\n").unwrap();
        for (number, tool) in self.declared().iter().enumerate() {
            let definition = json!({
                "id": tool.id,
                "description": format!("The tool {}.", tool.id),
                "parameters": tool.schema,
                "readOnly": tool.read_only,
                "parallelSafe": tool.parallel_safe,
                "implementation": {"type": "script", "command": format!("python tool.py {number}")},
            });
            let path = plugin.join(format!("tools/{number}.tool.json"));
            std::fs::write(path, definition.to_string()).unwrap();
        }
    }
}

/// Returns the schema of parameters that are all required texts.
pub(crate) fn texts(parameters: &[&str]) -> Value {
    let text = |name: &&str| ((*name).to_owned(), json!({"type": "string"}));
    let properties: Map<String, Value> = parameters.iter().map(text).collect();
    json!({"type": "object", "properties": properties, "required": parameters})
}

#[tonic::async_trait]
impl ScriptSandboxService for PlayedTools {
    type ExecuteStreamStream = BoxStream<ExecuteStreamResponse>;

    async fn execute(
        &self,
        _: Request<ExecuteRequest>,
    ) -> Result<Response<ExecuteResponse>, Status> {
        Err(Status::unimplemented("the registry streams every script"))
    }

    async fn execute_stream(
        &self,
        request: Request<tonic::Streaming<ExecuteStreamRequest>>,
    ) -> Result<Response<Self::ExecuteStreamStream>, Status> {
        let first = request.into_inner().message().await?;
        let Some(Message::Start(request)) = first.and_then(|first| first.message) else {
            return Err(Status::invalid_argument("the first message must be start"));
        };
        let number: usize = request.arguments[0].parse().unwrap();
        let (tools, id) = (self.clone(), self.declared()[number].id.clone());
        let arguments: Value = serde_json::from_slice(&request.stdin).unwrap();
        Ok(Response::new(Box::pin(async_stream::stream! {
            yield Ok(wrote(OutputStream::Stderr, format!("{id} works")));
            let answer = match tools.play(&id, &request.effect_id, &arguments).await {
                Played::Gave(output) => json!({"success": true, "outputData": output}),
                Played::Failed(message) => json!({"success": false, "error": message}),
                Played::Lost => {
                    yield Err(Status::unavailable("the tool is lost"));
                    return;
                }
            };
            yield Ok(wrote(OutputStream::Stdout, answer.to_string()));
            let exited = Kind::Exited(Exited { code: 0 });
            yield Ok(event(Event::Ended(ExecuteResponse {
                verdict: Some(Verdict { kind: Some(exited) }),
                ..ExecuteResponse::default()
            })));
        })))
    }

    async fn get_isolation(
        &self,
        _: Request<GetIsolationRequest>,
    ) -> Result<Response<GetIsolationResponse>, Status> {
        Ok(Response::new(GetIsolationResponse::default()))
    }

    async fn list_runtimes(
        &self,
        _: Request<ListRuntimesRequest>,
    ) -> Result<Response<ListRuntimesResponse>, Status> {
        Ok(Response::new(ListRuntimesResponse::default()))
    }
}

fn wrote(stream: OutputStream, text: String) -> ExecuteStreamResponse {
    event(Event::Output(OutputChunk {
        stream: stream.into(),
        data: text.into_bytes(),
        ..OutputChunk::default()
    }))
}

fn event(event: Event) -> ExecuteStreamResponse {
    ExecuteStreamResponse {
        sequence: 0,
        event: Some(event),
    }
}
