//! A sandbox, requests and verdicts for the tests.

use std::time::Duration;

use contracts::tavern::sandbox::v1::{
    ExecuteRequest, ExecuteResponse, Limits, execute_request::Program,
    script_sandbox_service_client::ScriptSandboxServiceClient, verdict::Kind,
};
use grpc_kit::Transport;
use script_sandbox::{
    SandboxSettings,
    domain::isolation::{IsolationLevel, MemoryEnforcement},
};

/// Client of a sandbox in this process.
pub(crate) type Client = ScriptSandboxServiceClient<Transport>;

/// A sandbox with its client.
#[derive(Clone)]
pub(crate) struct Host {
    pub(crate) client: Client,
}

impl Host {
    pub(crate) async fn with(settings: SandboxSettings) -> Host {
        let sandbox = script_sandbox::build(settings).await.unwrap();
        let services = script_sandbox::rpc::services(sandbox);
        let client = Client::new(grpc_kit::local(&services)).max_decoding_message_size(8 << 20);
        Host { client }
    }

    /// The level `full`, or what this machine has below it.
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

    /// The three kinds of host that every hostile program meets.
    pub(crate) async fn all() -> Vec<(&'static str, Host)> {
        let (full, sampled, reduced) = tokio::join!(Host::full(), Host::sampled(), Host::reduced());
        vec![("full", full), ("sampled", sampled), ("reduced", reduced)]
    }

    pub(crate) async fn run(&self, request: ExecuteRequest) -> ExecuteResponse {
        self.client
            .clone()
            .execute(request)
            .await
            .unwrap()
            .into_inner()
    }

    pub(crate) async fn python(&self, source: &str) -> ExecuteResponse {
        self.run(python(source)).await
    }
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
        program: Some(Program::SourceText(source.to_owned())),
        ..ExecuteRequest::default()
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

/// The kind of a verdict with what tells members of the kind apart.
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

/// The script ended well and wrote this.
#[track_caller]
pub(crate) fn expect_output(response: &ExecuteResponse, expected: &str) {
    expect_class(response, &["exited 0"]);
    assert_eq!(stdout(response), expected);
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

/// Waits until a condition holds.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + Duration::from_secs(2);
    while !holds() {
        assert!(
            std::time::Instant::now() < deadline,
            "not within 2 s: {what}"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
