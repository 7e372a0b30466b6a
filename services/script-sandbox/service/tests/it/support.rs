//! A sandbox, requests and verdicts for the tests.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use contracts::tavern::{
    common::v1::ErrorReason,
    sandbox::v1::{
        CreateSessionRequest, ExecuteRequest, ExecuteResponse, GetIsolationRequest,
        GetIsolationResponse, Limits, blob_service_client::BlobServiceClient,
        execute_request::Program, script_sandbox_service_client::ScriptSandboxServiceClient,
        session_service_client::SessionServiceClient, verdict::Kind,
    },
};
use grpc_kit::Outbound;
use sandbox_engine::domain::isolation::{IsolationLevel, MemoryEnforcement};
use script_sandbox::{Sandbox, SandboxSettings};

use tokio::task::JoinHandle;
use tonic::{Code, Status};

use crate::{audit, oracle::tells_no_secret, packages};

/// Client of a sandbox in this process.
pub(crate) type Client = ScriptSandboxServiceClient<Outbound>;

/// The wall time of programs that another limit has to end. Their verdicts may not depend on the
/// load of the machine.
pub(crate) const PATIENT: f64 = 300.0;

/// The longest wait for a condition before a test gives up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A sandbox with its client.
#[derive(Clone)]
pub(crate) struct Host {
    /// The name of its kind.
    pub(crate) kind: &'static str,
    /// Files of the host that hold a secret, on hosts that an oracle watches.
    pub(crate) canaries: PathBuf,
    pub(crate) client: Client,
    pub(crate) sessions: SessionServiceClient<Outbound>,
    pub(crate) blobs: BlobServiceClient<Outbound>,
    pub(crate) sandbox: Arc<Sandbox>,
}

impl Host {
    pub(crate) async fn with(settings: SandboxSettings) -> Host {
        audit::listen();
        let settings = packages::with_sets(settings);
        let sandbox = script_sandbox::build(settings).await.unwrap();
        let services = script_sandbox::services(sandbox.clone());
        let transport = grpc_kit::local(&services);
        Host {
            kind: "other",
            canaries: PathBuf::new(),
            client: Client::new(transport.clone().outermost()).max_decoding_message_size(8 << 20),
            sessions: SessionServiceClient::new(transport.clone().outermost()),
            blobs: BlobServiceClient::new(transport.outermost()),
            sandbox,
        }
    }

    /// The level `full`, or the strongest that this machine has below it.
    pub(crate) async fn full() -> Host {
        Host::with(SandboxSettings::default()).await
    }

    /// The level without namespaces.
    pub(crate) async fn reduced() -> Host {
        Host::with(reduced_settings()).await
    }

    /// The level `full` without cgroups.
    pub(crate) async fn sampled() -> Host {
        Host::with(SandboxSettings {
            use_cgroups: false,
            lowest_memory_enforcement: MemoryEnforcement::Sampled,
            ..SandboxSettings::default()
        })
        .await
    }

    /// The kinds of host that every hostile program meets. Only root certainly has cgroups; without
    /// them the first two are one.
    pub(crate) async fn all() -> Vec<Host> {
        let named = |kind, host: Host| Host { kind, ..host };
        let (sampled, reduced) = (Host::sampled(), Host::reduced());
        if crate::rounds::is_root() {
            let (full, sampled, reduced) = tokio::join!(Host::full(), sampled, reduced);
            vec![
                named("full", full),
                named("sampled", sampled),
                named("reduced", reduced),
            ]
        } else {
            let (sampled, reduced) = tokio::join!(sampled, reduced);
            vec![named("sampled", sampled), named("reduced", reduced)]
        }
    }

    /// The strongest of these hosts.
    pub(crate) async fn strongest() -> Host {
        let (kind, host) = match crate::rounds::is_root() {
            true => ("full", Host::full().await),
            false => ("sampled", Host::sampled().await),
        };
        Host { kind, ..host }
    }

    /// Returns whether scripts have the service's own user, so that the kernel cannot distinguish
    /// their processes from others: the limits of one script are then only measured.
    pub(crate) fn shares_its_user(&self) -> bool {
        self.kind == "reduced" && !crate::rounds::is_root()
    }

    pub(crate) async fn run(&self, request: ExecuteRequest) -> ExecuteResponse {
        execute(&self.client, request).await.unwrap()
    }

    pub(crate) async fn python(&self, source: &str) -> ExecuteResponse {
        self.run(python(source)).await
    }

    /// The sandbox's report of its isolation.
    pub(crate) async fn isolation(&self) -> GetIsolationResponse {
        let mut client = self.client.clone();
        let isolation = client.get_isolation(GetIsolationRequest {}).await;
        isolation.unwrap().into_inner()
    }

    /// Requests a script and a session, which are both refused; returns the statuses.
    pub(crate) async fn refuses_all(&self, code: Code, reason: ErrorReason) -> [Status; 2] {
        let script = self.client.clone().execute(python("print(1)")).await;
        let wish = CreateSessionRequest {
            runtime: "python3".to_owned(),
            ..CreateSessionRequest::default()
        };
        let session = self.sessions.clone().create_session(wish).await;
        let refusals = [script.unwrap_err(), session.unwrap_err()];
        for refusal in &refusals {
            expect_refusal(refusal, code, reason);
        }
        refusals
    }

    /// A script of this caller that sleeps already, until its caller goes.
    pub(crate) async fn sleeper(&self, caller: &str) -> Sleeper {
        let marker = marker();
        let asked = ExecuteRequest {
            caller_id: caller.to_owned(),
            ..request("bash", &format!("exec sleep {marker}"))
        };
        let call = tokio::spawn({
            let host = self.clone();
            async move { drop(host.run(asked).await) }
        });
        let mut found = Vec::new();
        eventually("the sleeper sleeps", || {
            found = processes_with(&marker);
            !found.is_empty()
        })
        .await;
        Sleeper {
            call,
            marker,
            process: found[0],
        }
    }
}

/// A script that sleeps.
pub(crate) struct Sleeper {
    call: JoinHandle<()>,
    marker: String,
    process: u32,
}

impl Sleeper {
    /// The id of its process.
    pub(crate) fn process(&self) -> u32 {
        self.process
    }

    /// Ends its caller; no process of it may be left.
    pub(crate) async fn end(self) {
        self.call.abort();
        eventually("the sleeper is gone", || {
            processes_with(&self.marker).is_empty()
        })
        .await;
    }
}

#[track_caller]
pub(crate) fn expect_refusal(status: &Status, code: Code, reason: ErrorReason) {
    assert_eq!(status.code(), code, "{status:?}");
    assert_eq!(grpc_kit::reason(status), Some(reason), "{status:?}");
}

/// Runs a script and checks the invariants of every answer.
pub(crate) async fn execute(
    client: &Client,
    request: ExecuteRequest,
) -> Result<ExecuteResponse, Status> {
    let (answer, trace) = audit::traced(client.clone().execute(request)).await;
    let response = answer?.into_inner();
    tells_no_secret(&response);
    audit::one_record(&trace, "script", &response);
    Ok(response)
}

pub(crate) fn reduced_settings() -> SandboxSettings {
    SandboxSettings {
        lowest_isolation: IsolationLevel::Reduced,
        highest_isolation: IsolationLevel::Reduced,
        ..SandboxSettings::default()
    }
}

pub(crate) fn request(runtime: &str, source: &str) -> ExecuteRequest {
    ExecuteRequest {
        runtime: runtime.to_owned(),
        packages: packages::of_every_script(runtime),
        program: Some(Program::SourceText(source.to_owned())),
        limits: Some(patient()),
        ..ExecuteRequest::default()
    }
}

/// Long times, which a program passes only on purpose; everything else by default.
pub(crate) fn patient() -> Limits {
    Limits {
        wall_time: seconds(PATIENT),
        cpu_time: seconds(PATIENT),
        ..Limits::default()
    }
}

/// The same, with so many MiB of memory.
pub(crate) fn memory_of(mebibytes: u64) -> Limits {
    Limits {
        memory_bytes: Some(mebibytes << 20),
        ..patient()
    }
}

pub(crate) fn python(source: &str) -> ExecuteRequest {
    request("python3", source)
}

pub(crate) fn limited(mut request: ExecuteRequest, limits: Limits) -> ExecuteRequest {
    request.limits = Some(limits);
    request
}

pub(crate) fn seconds(seconds: f64) -> Option<prost_types::Duration> {
    Duration::from_secs_f64(seconds).try_into().ok()
}

pub(crate) fn verdict(response: &ExecuteResponse) -> &Kind {
    response.verdict.as_ref().unwrap().kind.as_ref().unwrap()
}

/// The kind of a verdict with the details that distinguish its members.
pub(crate) fn class(response: &ExecuteResponse) -> String {
    match verdict(response) {
        Kind::Exited(exited) => format!("exited {}", exited.code),
        Kind::Signalled(signalled) => format!("signalled {}", signalled.name),
        Kind::Wall(_) => "wall".to_owned(),
        Kind::Cpu(_) => "cpu".to_owned(),
        Kind::Memory(_) => "memory".to_owned(),
        Kind::Processes(_) => "processes".to_owned(),
        Kind::Output(_) => "output".to_owned(),
        Kind::Disk(_) => "disk".to_owned(),
        Kind::ForbiddenSyscall(_) => "forbidden_syscall".to_owned(),
        Kind::NetworkDenied(_) => "network_denied".to_owned(),
        Kind::Policy(_) => "policy".to_owned(),
        Kind::Cancelled(_) => "cancelled".to_owned(),
        Kind::LauncherFailure(failure) => format!("launcher_failure {failure:?}"),
    }
}

pub(crate) fn stdout(response: &ExecuteResponse) -> String {
    String::from_utf8_lossy(&response.stdout).into_owned()
}

pub(crate) fn stderr(response: &ExecuteResponse) -> String {
    String::from_utf8_lossy(&response.stderr).into_owned()
}

#[track_caller]
pub(crate) fn expect_class(response: &ExecuteResponse, allowed: &[&str]) {
    let class = class(response);
    assert!(
        allowed.contains(&class.as_str()),
        "the verdict is {class}, not one of {allowed:?}\nstdout: {}\nstderr: {}",
        stdout(response),
        stderr(response)
    );
}

/// Checks that the script ended well with this output.
#[track_caller]
pub(crate) fn expect_output(response: &ExecuteResponse, expected: &str) {
    expect_class(response, &["exited 0"]);
    assert_eq!(stdout(response), expected);
}

/// A number of seconds for which no other process on this machine sleeps.
pub(crate) fn marker() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("1{:08}.{number:04}", std::process::id())
}

/// Processes of this machine whose command line holds `marker`.
pub(crate) fn processes_with(marker: &str) -> Vec<u32> {
    std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            let line = std::fs::read(entry.path().join("cmdline")).ok()?;
            String::from_utf8_lossy(&line)
                .contains(marker)
                .then_some(pid)
        })
        .collect()
}

/// The number of threads of this machine with a name, even if the first threads of their processes
/// have ended.
pub(crate) fn threads_named(name: &str) -> usize {
    let directories = |path: std::path::PathBuf| std::fs::read_dir(path).into_iter().flatten();
    directories("/proc".into())
        .flatten()
        // Entries that are not numbers are aliases for the process that reads the directory.
        .filter(|entry| entry.file_name().as_encoded_bytes()[0].is_ascii_digit())
        .flat_map(|entry| directories(entry.path().join("task")).flatten())
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("comm")).ok())
        .filter(|comm| comm.trim_end() == name)
        .count()
}

/// The number of processes of this machine with a name, including dead ones that no parent has
/// waited for.
pub(crate) fn processes_named(name: &str) -> usize {
    let name = format!("({name})");
    let stats = std::fs::read_dir("/proc").unwrap().flatten();
    stats
        .filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok())
        .filter(|stat| stat.contains(&name))
        .count()
}

/// Waits until a condition holds.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + PATIENCE;
    while !holds() {
        assert!(
            std::time::Instant::now() < deadline,
            "not within {PATIENCE:?}: {what}"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
