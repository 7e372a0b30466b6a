//! A sandbox in this process, and scripts that are run on it many at a time.

use std::{future::Future, sync::Arc, time::Duration};

use anyhow::Context;
use contracts::tavern::sandbox::v1::{
    ExecuteRequest, ExecuteResponse, Limits, execute_request::Program,
    script_sandbox_service_client::ScriptSandboxServiceClient, verdict::Kind,
};
use grpc_kit::Outbound;
use sandbox_engine::domain::isolation::IsolationLevel;
use script_sandbox::{Sandbox, SandboxSettings};
use tokio::{sync::Semaphore, task::JoinSet};

use crate::{left::Left, race::Tally};

/// The scripts that run at the same time.
const AT_ONCE: usize = 4;

/// The scripts that are run before the first count of remains.
pub(crate) const FIRST: u32 = 100;

/// No script may end by this because the machine is busy.
const PATIENT: Duration = Duration::from_secs(300);

pub(crate) type Client = ScriptSandboxServiceClient<Outbound>;

/// The isolation level of scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// The strongest that the host has.
    Strongest,
    /// Without namespaces.
    Reduced,
}

impl Level {
    /// Both levels.
    pub(crate) const BOTH: [Level; 2] = [Level::Strongest, Level::Reduced];

    /// Its name in a report.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Level::Strongest => "strongest",
            Level::Reduced => "reduced",
        }
    }

    fn settings(self) -> SandboxSettings {
        SandboxSettings {
            lowest_isolation: IsolationLevel::Reduced,
            highest_isolation: match self {
                Level::Strongest => IsolationLevel::Full,
                Level::Reduced => IsolationLevel::Reduced,
            },
            ..SandboxSettings::default()
        }
    }
}

/// A sandbox with its client.
#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) client: Client,
    sandbox: Arc<Sandbox>,
    /// The state before the service started.
    nothing: Left,
}

impl Service {
    /// Starts one.
    ///
    /// # Errors
    /// A host that cannot run it.
    pub(crate) async fn start(level: Level) -> anyhow::Result<Self> {
        let nothing = Left::count();
        let sandbox = script_sandbox::build(level.settings()).await?;
        let transport = grpc_kit::local(&script_sandbox::services(sandbox.clone()));
        Ok(Self {
            client: Client::new(transport.outermost()),
            sandbox,
            nothing,
        })
    }

    /// Runs a script to its end.
    ///
    /// # Errors
    /// A refusal by the service.
    pub(crate) async fn run(&self, request: ExecuteRequest) -> anyhow::Result<ExecuteResponse> {
        Ok(self.client.clone().execute(request).await?.into_inner())
    }

    /// Ends the service and waits until it left no remains; memory and descriptors may be as many
    /// as in `before`, of a service that has run scripts.
    ///
    /// # Errors
    /// All remains.
    pub(crate) async fn end(self, before: &Left) -> anyhow::Result<Left> {
        self.sandbox.shutdown().await;
        Left::settle(&self.nothing.with_resources_of(before)).await
    }
}

/// A script with no limit that it could meet by itself.
pub(crate) fn request(runtime: &str, source: String) -> ExecuteRequest {
    ExecuteRequest {
        runtime: runtime.to_owned(),
        program: Some(Program::SourceText(source)),
        limits: Some(patient()),
        ..ExecuteRequest::default()
    }
}

/// Time limits that only a script designed to exceed them reaches.
pub(crate) fn patient() -> Limits {
    Limits {
        wall_time: PATIENT.try_into().ok(),
        cpu_time: PATIENT.try_into().ok(),
        ..Limits::default()
    }
}

/// Returns the end of a script.
///
/// # Errors
/// An answer without a verdict.
pub(crate) fn verdict(response: &ExecuteResponse) -> anyhow::Result<&Kind> {
    let verdict = response.verdict.as_ref();
    let kind = verdict.and_then(|verdict| verdict.kind.as_ref());
    kind.context("an answer has a verdict")
}

/// Repeats an operation, `AT_ONCE` at a time, and passes each result on. The first error ends it.
///
/// # Errors
/// The first error of a try or of the receiver of its result.
pub(crate) async fn many<T, F>(
    times: std::ops::Range<u32>,
    mut one: impl FnMut(u32) -> F,
    mut take: impl FnMut(T),
) -> anyhow::Result<()>
where
    T: Send + 'static,
    F: Future<Output = anyhow::Result<T>> + Send + 'static,
{
    let room = Arc::new(Semaphore::new(AT_ONCE));
    let mut running = JoinSet::new();
    for number in times {
        let permit = room.clone().acquire_owned().await?;
        let ending = one(number);
        running.spawn(async move {
            let ended = ending.await;
            drop(permit);
            ended
        });
        while let Some(ended) = running.try_join_next() {
            take(ended??);
        }
    }
    while let Some(ended) = running.join_next().await {
        take(ended??);
    }
    Ok(())
}

/// Races against the service, on each of these levels its part of the tries, and returns the count
/// of each direction.
///
/// # Errors
/// A try that failed, a direction that never occurred, or any remains.
pub(crate) async fn race<F>(
    levels: &[Level],
    times: u32,
    directions: &[&'static str],
    one: impl Fn(Service, u32) -> F,
) -> anyhow::Result<String>
where
    F: Future<Output = anyhow::Result<&'static str>> + Send + 'static,
{
    let mut lines = Vec::new();
    let each = times.div_ceil(u32::try_from(levels.len())?);
    for level in levels {
        let service = Service::start(*level).await?;
        let mut tally = Tally::of(directions);
        let run = |number| one(service.clone(), number);
        let first = FIRST.min(each);
        many(0..first, run, |direction| tally.add(direction)).await?;
        let before = Left::count();
        many(first..each, run, |direction| tally.add(direction)).await?;
        let tally = tally.hit().context(level.name());
        service.end(&before).await.context(level.name())?;
        lines.push(format!("{}: {}", level.name(), tally?));
    }
    Ok(lines.join("\n"))
}
