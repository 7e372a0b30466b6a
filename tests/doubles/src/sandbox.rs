//! A sandbox without any isolation: programs run as processes of the test's user, or are held until
//! they are let go, or get a verdict that was set.

use std::{
    process::Stdio,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use contracts::tavern::sandbox::v1::{
    ExecuteRequest, ExecuteResponse, ExecuteStreamRequest, ExecuteStreamResponse, Exited,
    GetIsolationRequest, GetIsolationResponse, ListRuntimesRequest, ListRuntimesResponse,
    OutputChunk, OutputStream, ResultState, Runtime, Verdict, execute_request::Program,
    execute_stream_request::Message, execute_stream_response::Event,
    script_sandbox_service_server::ScriptSandboxService, verdict::Kind,
};
use futures::{StreamExt, stream::select};
use tokio::{
    io::AsyncWriteExt,
    process::Command,
    sync::{Semaphore, watch},
};
use tokio_util::io::ReaderStream;
use tonic::{Request, Response, Status};

/// The treatment of a program by a double.
#[derive(Clone, Debug)]
pub enum Mode {
    /// Runs it, unconfined.
    Run,
    /// Holds it until a permit is there, then answers with this on standard output.
    Hold(String),
    /// Answers with this verdict at once.
    Verdict(Kind),
    /// Answers with this at once.
    Answer(Box<ExecuteResponse>),
    /// Answers with this status.
    Refuse(tonic::Code),
    /// Writes this and is lost.
    Break(String),
}

/// A sandbox without any isolation.
#[derive(Clone, Debug)]
pub struct UnconfinedSandbox {
    /// Its behaviour towards programs.
    pub mode: Arc<Mutex<Mode>>,
    /// The number of programs that were started.
    pub started: Arc<AtomicUsize>,
    /// The number of held programs that were dropped before they ended.
    pub dropped: Arc<AtomicUsize>,
    /// Lets held programs end.
    pub permits: Arc<Semaphore>,
    /// The last request.
    pub last: Arc<Mutex<Option<ExecuteRequest>>>,
    /// The number of programs that run, and the most that ran at once.
    running: Arc<watch::Sender<(usize, usize)>>,
}

impl Default for UnconfinedSandbox {
    fn default() -> Self {
        Self {
            mode: Arc::new(Mutex::new(Mode::Run)),
            started: Arc::default(),
            dropped: Arc::default(),
            permits: Arc::new(Semaphore::new(0)),
            last: Arc::default(),
            running: Arc::default(),
        }
    }
}

impl UnconfinedSandbox {
    /// Treats programs like this from here on.
    pub fn set(&self, mode: Mode) {
        *self.mode.lock().unwrap() = mode;
    }

    /// Returns the number of programs started.
    pub fn started(&self) -> usize {
        self.started.load(Ordering::SeqCst)
    }

    /// Returns the most programs that ran at once.
    pub fn most_at_once(&self) -> usize {
        self.running.borrow().1
    }

    /// Waits until `count` programs run at once.
    pub async fn until_running(&self, count: usize) {
        let mut running = self.running.subscribe();
        let reached = running.wait_for(|(running, _)| *running == count).await;
        drop(reached.unwrap());
    }

    /// Counts a program as running until the returned guard is dropped.
    fn count(&self) -> Running {
        self.running.send_modify(|(running, most)| {
            *running += 1;
            *most = (*most).max(*running);
        });
        Running(Arc::clone(&self.running))
    }
}

struct Running(Arc<watch::Sender<(usize, usize)>>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.send_modify(|(running, _)| *running -= 1);
    }
}

struct CountDrop(Option<Arc<AtomicUsize>>);

impl Drop for CountDrop {
    fn drop(&mut self) {
        if let Some(dropped) = &self.0 {
            dropped.fetch_add(1, Ordering::SeqCst);
        }
    }
}

#[tonic::async_trait]
impl ScriptSandboxService for UnconfinedSandbox {
    async fn execute(
        &self,
        _: Request<ExecuteRequest>,
    ) -> Result<Response<ExecuteResponse>, Status> {
        Err(Status::unimplemented("the registry streams every script"))
    }

    type ExecuteStreamStream = tonic::codegen::BoxStream<ExecuteStreamResponse>;

    async fn execute_stream(
        &self,
        request: Request<tonic::Streaming<ExecuteStreamRequest>>,
    ) -> Result<Response<Self::ExecuteStreamStream>, Status> {
        let first = request.into_inner().message().await?;
        let Some(Message::Start(request)) = first.and_then(|first| first.message) else {
            return Err(Status::invalid_argument("the first message must be start"));
        };
        *self.last.lock().unwrap() = Some(request.clone());
        self.started.fetch_add(1, Ordering::SeqCst);
        let mode = self.mode.lock().unwrap().clone();
        let response = match mode {
            Mode::Run => return Ok(Response::new(run(request, self.count())?)),
            Mode::Hold(stdout) => {
                let guard = CountDrop(Some(Arc::clone(&self.dropped)));
                let permits = Arc::clone(&self.permits);
                return Ok(Response::new(Box::pin(async_stream::stream! {
                    let mut guard = guard;
                    permits.acquire().await.unwrap().forget();
                    guard.0 = None;
                    drop(guard);
                    yield Ok(chunk(OutputStream::Stdout, stdout.into_bytes()));
                    yield Ok(ended(exited(0)));
                })));
            }
            Mode::Verdict(kind) => ExecuteResponse {
                stderr: b"last words".to_vec(),
                ..verdict(kind)
            },
            Mode::Answer(response) => *response,
            Mode::Refuse(code) => return Err(Status::new(code, "the double refuses")),
            Mode::Break(stdout) => {
                let chunk = chunk(OutputStream::Stdout, stdout.into_bytes());
                let broken = Status::unavailable("the double breaks");
                let answers = futures::stream::iter([Ok(chunk), Err(broken)]);
                return Ok(Response::new(Box::pin(answers)));
            }
        };
        let answers = [
            chunk(OutputStream::Stdout, response.stdout.clone()),
            chunk(OutputStream::Stderr, response.stderr.clone()),
            ended(response),
        ];
        let answers = futures::stream::iter(answers.map(Ok));
        Ok(Response::new(Box::pin(answers)))
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
        let runtimes = RUNTIMES.iter().map(|(name, alias, ..)| Runtime {
            name: (*name).to_owned(),
            aliases: vec![(*alias).to_owned()],
            usable: true,
            ..Runtime::default()
        });
        let runtimes = runtimes.collect();
        Ok(Response::new(ListRuntimesResponse { runtimes }))
    }
}

/// The runtimes: each with an alias, its program, and the file of a source.
const RUNTIMES: [(&str, &str, &str, &str); 3] = [
    ("python3", "python", "python3", "main.py"),
    ("node", "nodejs", "node", "main.js"),
    ("bash", "sh", "bash", "main.sh"),
];

/// Runs a program, and streams its output as it is written.
fn run(
    request: ExecuteRequest,
    running: Running,
) -> Result<tonic::codegen::BoxStream<ExecuteStreamResponse>, Status> {
    let wanted = request.runtime.as_str();
    let is_it = |(name, alias, ..): &&(&str, &str, _, _)| [*name, *alias].contains(&wanted);
    let Some(&(.., interpreter, file)) = RUNTIMES.iter().find(is_it) else {
        let message = format!("the double has no {wanted}");
        return Err(Status::failed_precondition(message));
    };
    let (directory, channels) = (tempfile::tempdir()?, tempfile::tempdir()?);
    for file in &request.files {
        let path = directory.path().join(&file.path);
        std::fs::create_dir_all(path.parent().unwrap())?;
        std::fs::write(path, &file.content)?;
    }
    let entry = match request.program.unwrap() {
        Program::EntryPath(path) => path,
        Program::SourceText(source) => {
            std::fs::write(directory.path().join(file), source)?;
            file.to_owned()
        }
    };
    let (input, result) = (
        channels.path().join("input.json"),
        channels.path().join("result.json"),
    );
    std::fs::write(&input, &request.input_json)?;
    let options = channels.path().join("options.json");
    let mut command = Command::new("sh");
    if !request.options_json.is_empty() {
        std::fs::write(&options, &request.options_json)?;
        command.env("TAVERN_OPTIONS", options);
    }
    let mut child = command
        .args(["-c", r#"exec "$@" 3>"$RESULT""#, "sh", interpreter, &entry])
        .args(&request.arguments)
        .current_dir(directory.path())
        // A shim in front of an interpreter can take longer than the script.
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("RESULT", &result)
        .env("TAVERN_INPUT_PATH", input)
        .env("TAVERN_RESULT_FD", "3")
        .env("TAVERN_EFFECT_ID", &request.effect_id)
        .env("TAVERN_CONVERSATION_ID", &request.conversation_id)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    Ok(Box::pin(async_stream::try_stream! {
        let _running = running;
        let _directory = (directory, channels);
        // A program may end without reading.
        let _ = child.stdin.take().unwrap().write_all(&request.stdin).await;
        let stdout = ReaderStream::new(child.stdout.take().unwrap());
        let stderr = ReaderStream::new(child.stderr.take().unwrap());
        let mut written = select(
            stdout.map(|bytes| (OutputStream::Stdout, bytes)),
            stderr.map(|bytes| (OutputStream::Stderr, bytes)),
        );
        while let Some((stream, bytes)) = written.next().await {
            yield chunk(stream, bytes?.to_vec());
        }
        let status = child.wait().await?;
        let result_json = std::fs::read_to_string(result)?;
        let state = match result_json.is_empty() {
            true => ResultState::None,
            false => ResultState::Json,
        };
        yield ended(ExecuteResponse {
            result_json,
            result_state: state.into(),
            ..exited(status.code().unwrap_or(-1))
        });
    }))
}

fn chunk(stream: OutputStream, data: Vec<u8>) -> ExecuteStreamResponse {
    let chunk = OutputChunk {
        stream: stream.into(),
        data,
        ..OutputChunk::default()
    };
    event(Event::Output(chunk))
}

fn ended(response: ExecuteResponse) -> ExecuteStreamResponse {
    event(Event::Ended(ExecuteResponse {
        stdout: Vec::new(),
        stderr: Vec::new(),
        ..response
    }))
}

fn event(event: Event) -> ExecuteStreamResponse {
    ExecuteStreamResponse {
        sequence: 0,
        event: Some(event),
    }
}

fn exited(code: i32) -> ExecuteResponse {
    verdict(Kind::Exited(Exited { code }))
}

fn verdict(kind: Kind) -> ExecuteResponse {
    ExecuteResponse {
        verdict: Some(Verdict { kind: Some(kind) }),
        ..ExecuteResponse::default()
    }
}
