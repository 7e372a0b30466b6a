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
    GetIsolationRequest, GetIsolationResponse, ListRuntimesRequest, ListRuntimesResponse, Verdict,
    execute_request::Program, script_sandbox_service_server::ScriptSandboxService, verdict::Kind,
};
use tokio::{io::AsyncWriteExt, process::Command, sync::Semaphore};
use tonic::{Request, Response, Status};

/// What a double does with a program.
#[derive(Clone, Debug)]
pub(crate) enum Mode {
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
}

/// A sandbox without any isolation.
#[derive(Clone, Debug)]
pub(crate) struct UnconfinedSandbox {
    pub(crate) mode: Arc<Mutex<Mode>>,
    /// How many programs were started.
    pub(crate) started: Arc<AtomicUsize>,
    /// How many held programs were dropped before they ended.
    pub(crate) dropped: Arc<AtomicUsize>,
    pub(crate) permits: Arc<Semaphore>,
    pub(crate) last: Arc<Mutex<Option<ExecuteRequest>>>,
}

impl UnconfinedSandbox {
    pub(crate) fn new() -> Self {
        Self {
            mode: Arc::new(Mutex::new(Mode::Run)),
            started: Arc::default(),
            dropped: Arc::default(),
            permits: Arc::new(Semaphore::new(0)),
            last: Arc::default(),
        }
    }

    pub(crate) fn set(&self, mode: Mode) {
        *self.mode.lock().unwrap() = mode;
    }

    pub(crate) fn started(&self) -> usize {
        self.started.load(Ordering::SeqCst)
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
        request: Request<ExecuteRequest>,
    ) -> Result<Response<ExecuteResponse>, Status> {
        let request = request.into_inner();
        *self.last.lock().unwrap() = Some(request.clone());
        self.started.fetch_add(1, Ordering::SeqCst);
        let mode = self.mode.lock().unwrap().clone();
        Ok(Response::new(match mode {
            Mode::Run => run(request).await,
            Mode::Hold(stdout) => {
                let mut guard = CountDrop(Some(Arc::clone(&self.dropped)));
                self.permits.acquire().await.unwrap().forget();
                guard.0 = None;
                ended(
                    Kind::Exited(Exited { code: 0 }),
                    stdout.into_bytes(),
                    Vec::new(),
                )
            }
            Mode::Verdict(kind) => ended(kind, Vec::new(), b"last words".to_vec()),
            Mode::Answer(response) => *response,
            Mode::Refuse(code) => return Err(Status::new(code, "the double refuses")),
        }))
    }

    type ExecuteStreamStream = tonic::codegen::BoxStream<ExecuteStreamResponse>;

    async fn execute_stream(
        &self,
        _: Request<tonic::Streaming<ExecuteStreamRequest>>,
    ) -> Result<Response<Self::ExecuteStreamStream>, Status> {
        Err(Status::unimplemented("the double does not talk"))
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

async fn run(request: ExecuteRequest) -> ExecuteResponse {
    let directory = tempfile::tempdir().unwrap();
    for file in &request.files {
        let path = directory.path().join(&file.path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, &file.content).unwrap();
    }
    let (interpreter, file) = match request.runtime.as_str() {
        "python" | "python3" => ("python3", "main.py"),
        "node" | "nodejs" => ("node", "main.js"),
        _ => ("bash", "main.sh"),
    };
    let entry = match request.program.unwrap() {
        Program::EntryPath(path) => path,
        Program::SourceText(source) => {
            std::fs::write(directory.path().join(file), source).unwrap();
            file.to_owned()
        }
    };
    let mut child = Command::new(interpreter)
        .arg(entry)
        .args(&request.arguments)
        .current_dir(directory.path())
        .env("TAVERN_EFFECT_ID", &request.effect_id)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    // A program may end without reading.
    let _ = child.stdin.take().unwrap().write_all(&request.stdin).await;
    let output = child.wait_with_output().await.unwrap();
    let code = output.status.code().unwrap_or(-1);
    ended(Kind::Exited(Exited { code }), output.stdout, output.stderr)
}

fn ended(kind: Kind, stdout: Vec<u8>, stderr: Vec<u8>) -> ExecuteResponse {
    ExecuteResponse {
        verdict: Some(Verdict { kind: Some(kind) }),
        stdout,
        stderr,
        ..ExecuteResponse::default()
    }
}
