//! Scripts of every runtime that end well, fail, are killed and are cancelled, some of them in waiting
//! interpreters.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::{Context, ensure};
use contracts::tavern::sandbox::v1::{
    ExecuteRequest, ExecuteResponse, Limits, execute_request::Program,
    script_sandbox_service_client::ScriptSandboxServiceClient, verdict::Kind,
};
use grpc_kit::Transport;
use script_sandbox::{SandboxSettings, domain::isolation::IsolationLevel};
use tokio::{sync::Semaphore, task::JoinSet};

use crate::left::Left;

/// How many run at the same time.
const AT_ONCE: usize = 4;

/// How many are run before the first look at what there is.
const FIRST: u32 = 100;

type Client = ScriptSandboxServiceClient<Transport>;

/// One kind of script, and how it must end.
struct Case {
    runtime: &'static str,
    source: &'static str,
    limits: Limits,
    /// After how many milliseconds the caller goes away.
    leaves_after: Option<u64>,
    ends: &'static str,
}

fn cases() -> Vec<Case> {
    let case = |runtime, source, ends| Case {
        runtime,
        source,
        limits: Limits::default(),
        leaves_after: None,
        ends,
    };
    let time = |millis: u64| Duration::from_millis(millis).try_into().ok();
    let mut cases = vec![
        case("python3", "print(sum(range(1000)))", "exited"),
        case("node", "console.log([1, 2, 3].map((n) => n * n))", "exited"),
        case("bash", "echo one | cat; ls /", "exited"),
        case("python3", "raise ValueError('wrong')", "exited"),
        case("node", "throw new Error('wrong')", "exited"),
        case("bash", "exit 7", "exited"),
        case(
            "python3",
            "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
            "signalled",
        ),
        case("bash", "kill -9 $$", "signalled"),
        case(
            "python3",
            "import os\nfor n in range(8):\n    if os.fork() == 0:\n        os.setsid(); os.execvp('sleep', ['sleep', '1000'])",
            "exited",
        ),
        case(
            "python3",
            "open('/tmp/large', 'wb').write(bytes(1 << 20)); open('/dev/shm/large', 'wb').write(bytes(1 << 20))",
            "exited",
        ),
    ];
    cases.push(Case {
        limits: Limits {
            wall_time: time(300),
            ..Limits::default()
        },
        ..case("bash", "setsid sleep 1000 & sleep 1000", "wall")
    });
    cases.push(Case {
        limits: Limits {
            output_bytes: Some(1000),
            ..Limits::default()
        },
        ..case("python3", "while True: print('x' * 1000)", "output")
    });
    // Another size of a file than by default: no waiting interpreter fits.
    cases.push(Case {
        limits: Limits {
            file_bytes: Some(1 << 20),
            ..Limits::default()
        },
        ..case("python3", "print('cold')", "exited")
    });
    for (runtime, source) in [
        ("python3", "import time; time.sleep(1000)"),
        ("node", "setInterval(() => {}, 1000)"),
        ("bash", "sleep 1000 & wait"),
    ] {
        for leaves_after in [1, 60] {
            cases.push(Case {
                leaves_after: Some(leaves_after),
                ..case(runtime, source, "left")
            });
        }
    }
    cases
}

/// Runs so many scripts and tells how they ended.
///
/// # Errors
/// A script that ended in another way than it must, or what is left behind.
pub(crate) async fn run(times: u32) -> anyhow::Result<String> {
    let settings = SandboxSettings {
        lowest_isolation: IsolationLevel::Reduced,
        ..SandboxSettings::default()
    };
    let nothing = Left::count();
    let sandbox = script_sandbox::build(settings).await?;
    let client = Client::new(grpc_kit::local(&script_sandbox::rpc::services(
        sandbox.clone(),
    )));
    let mut counts = BTreeMap::new();
    // The first ones bring everything to the size at which it stays.
    many(&client, FIRST.min(times), &mut counts).await?;
    let before = Left::count();
    many(&client, times.saturating_sub(FIRST), &mut counts).await?;
    sandbox.shutdown().await;
    // Nothing may be left of scripts and interpreters; memory and descriptors are those of a service
    // that has run scripts.
    let base = nothing.with_resources_of(&before);
    let after = Left::settle(&base).await?;
    let counts: Vec<String> = counts
        .into_iter()
        .map(|(what, count)| format!("{count} {what}"))
        .collect();
    Ok(format!(
        "{}\nbefore: {before}\nafter:  {after}",
        counts.join(", ")
    ))
}

async fn many(
    client: &Client,
    times: u32,
    counts: &mut BTreeMap<String, u32>,
) -> anyhow::Result<()> {
    let cases = Arc::new(cases());
    let room = Arc::new(Semaphore::new(AT_ONCE));
    let mut running = JoinSet::new();
    for number in 0..times {
        let permit = room.clone().acquire_owned().await?;
        let (client, cases) = (client.clone(), cases.clone());
        running.spawn(async move {
            let case = &cases[number as usize % cases.len()];
            let ended = one(client, case).await;
            drop(permit);
            ended
        });
        while let Some(ended) = running.try_join_next() {
            *counts.entry(ended??).or_default() += 1;
        }
    }
    while let Some(ended) = running.join_next().await {
        *counts.entry(ended??).or_default() += 1;
    }
    Ok(())
}

/// Runs one script; tells how it ended and whether its interpreter had waited.
async fn one(mut client: Client, case: &Case) -> anyhow::Result<String> {
    let request = ExecuteRequest {
        runtime: case.runtime.to_owned(),
        program: Some(Program::SourceText(case.source.to_owned())),
        limits: Some(case.limits),
        ..ExecuteRequest::default()
    };
    let call = client.execute(request);
    let response = match case.leaves_after {
        Some(millis) => match tokio::time::timeout(Duration::from_millis(millis), call).await {
            Ok(answered) => answered?,
            Err(_) => return Ok("left by their callers".to_owned()),
        },
        None => call.await?,
    };
    let response: ExecuteResponse = response.into_inner();
    let kind = response
        .verdict
        .as_ref()
        .and_then(|verdict| verdict.kind.as_ref())
        .context("an answer has a verdict")?;
    let ended = match kind {
        Kind::Exited(_) => "exited",
        Kind::Signalled(_) => "signalled",
        Kind::Wall(_) => "wall",
        Kind::Output(_) => "output",
        _ => "other",
    };
    ensure!(
        ended == case.ends,
        "a script ended with {kind:?} and not with `{}`: {}\n{}",
        case.ends,
        case.source,
        String::from_utf8_lossy(&response.stderr)
    );
    let warm = response.usage.is_some_and(|usage| usage.warm_start);
    Ok(format!("{ended} {}", if warm { "warm" } else { "cold" }))
}
