//! A double of the script sandbox: it runs scripts as plain processes, without isolation.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use contracts::tavern::sandbox::v1::execute_request::Program;
use contracts::tavern::sandbox::v1::execute_stream_request::Message;
use contracts::tavern::sandbox::v1::execute_stream_response::Event;
use contracts::tavern::sandbox::v1::script_sandbox_service_server::ScriptSandboxService;
use contracts::tavern::sandbox::v1::*;
use futures::StreamExt;
use futures::stream::select;
use tokio::process::Command;
use tokio::sync::watch;
use tokio_util::io::ReaderStream;
use tonic::{Request, Response, Status};

/// The sandbox's double. Clones are handles of the same.
#[derive(Clone, Default)]
pub(crate) struct SandboxDouble {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    runs: AtomicUsize,
    running: watch::Sender<usize>,
    /// The most scripts that ran at once.
    most: AtomicUsize,
    ended: watch::Sender<usize>,
}

impl SandboxDouble {
    /// How many scripts were started.
    pub(crate) fn runs(&self) -> usize {
        self.inner.runs.load(Ordering::SeqCst)
    }

    /// The most scripts that ran at once.
    pub(crate) fn most_at_once(&self) -> usize {
        self.inner.most.load(Ordering::SeqCst)
    }

    /// Waits until `count` scripts run at once.
    pub(crate) async fn until_running(&self, count: usize) {
        self.inner
            .running
            .subscribe()
            .wait_for(|running| *running == count)
            .await
            .unwrap();
    }
}

/// Counts a script as running until it is dropped.
struct Counted(Arc<Inner>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.running.send_modify(|running| *running -= 1);
        self.0.ended.send_modify(|ended| *ended += 1);
    }
}

#[tonic::async_trait]
impl ScriptSandboxService for SandboxDouble {
    async fn execute(
        &self,
        _: Request<ExecuteRequest>,
    ) -> Result<Response<ExecuteResponse>, Status> {
        Err(Status::unimplemented("nodes stream every script"))
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
        let Some(Program::SourceText(source)) = request.program else {
            return Err(Status::invalid_argument(
                "the double wants the script itself",
            ));
        };
        let program = match request.runtime.as_str() {
            "python3" => "python3",
            "node" => "node",
            other => {
                return Err(Status::failed_precondition(format!(
                    "the double has no {other}"
                )));
            }
        };
        self.inner.runs.fetch_add(1, Ordering::SeqCst);
        self.inner.running.send_modify(|running| *running += 1);
        self.inner
            .most
            .fetch_max(*self.inner.running.borrow(), Ordering::SeqCst);
        let counted = Counted(Arc::clone(&self.inner));
        let directory = tempfile::tempdir()?;
        let path = |name: &str| directory.path().join(name);
        std::fs::write(path("script"), source)?;
        std::fs::write(path("input.json"), &request.input_json)?;
        let mut child = Command::new("sh")
            .args(["-c", &format!("exec {program} script 3>result.json")])
            .current_dir(directory.path())
            // A shim in front of an interpreter can take longer than the script.
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("TAVERN_INPUT_PATH", path("input.json"))
            .env("TAVERN_RESULT_FD", "3")
            .env("TAVERN_EFFECT_ID", request.effect_id)
            .env("TAVERN_CONVERSATION_ID", request.conversation_id)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        Ok(Response::new(Box::pin(async_stream::try_stream! {
            let _counted = counted;
            let stdout = ReaderStream::new(child.stdout.take().unwrap());
            let stderr = ReaderStream::new(child.stderr.take().unwrap());
            let mut written = select(
                stdout.map(|bytes| (OutputStream::Stdout, bytes)),
                stderr.map(|bytes| (OutputStream::Stderr, bytes)),
            );
            while let Some((stream, bytes)) = written.next().await {
                yield event(Event::Output(OutputChunk {
                    stream: stream.into(),
                    data: bytes?.to_vec(),
                    ..OutputChunk::default()
                }));
            }
            let status = child.wait().await?;
            let result_json = std::fs::read_to_string(directory.path().join("result.json"))?;
            let state = if result_json.is_empty() {
                ResultState::None
            } else {
                ResultState::Json
            };
            let kind = verdict::Kind::Exited(Exited {
                code: status.code().unwrap_or(-1),
            });
            yield event(Event::Ended(ExecuteResponse {
                verdict: Some(Verdict { kind: Some(kind) }),
                result_json,
                result_state: state.into(),
                ..ExecuteResponse::default()
            }));
        })))
    }

    async fn get_isolation(
        &self,
        _: Request<GetIsolationRequest>,
    ) -> Result<Response<GetIsolationResponse>, Status> {
        Err(Status::unimplemented("not in the double"))
    }

    async fn list_runtimes(
        &self,
        _: Request<ListRuntimesRequest>,
    ) -> Result<Response<ListRuntimesResponse>, Status> {
        Err(Status::unimplemented("not in the double"))
    }
}

fn event(event: Event) -> ExecuteStreamResponse {
    ExecuteStreamResponse {
        sequence: 0,
        event: Some(event),
    }
}
