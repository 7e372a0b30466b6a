//! Scripts of every runtime that end well, fail, are killed and are cancelled, some of them in waiting
//! interpreters.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::ensure;
use contracts::tavern::sandbox::v1::{
    ExecuteRequest, ExecuteResponse, Limits, execute_request::Program, verdict::Kind,
};

use crate::{
    left::Left,
    service::{self, Client, FIRST, Level, Service},
};

/// One kind of script, and its expected end.
struct Case {
    runtime: &'static str,
    source: &'static str,
    limits: Limits,
    /// The milliseconds after which the caller disconnects.
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

/// Runs `times` scripts and returns the counts of their ends.
///
/// # Errors
/// A script with another end than expected, or any remains.
pub(crate) async fn run(times: u32) -> anyhow::Result<String> {
    let service = Service::start(Level::Strongest).await?;
    let cases = Arc::new(cases());
    let mut counts = BTreeMap::new();
    let run = |number: u32| {
        let (client, cases) = (service.client.clone(), cases.clone());
        async move { one(client, &cases[number as usize % cases.len()]).await }
    };
    let mut count = |ended| *counts.entry(ended).or_insert(0) += 1;
    // The first executions bring memory and files to their lasting size.
    let first = FIRST.min(times);
    service::many(0..first, run, &mut count).await?;
    let before = Left::count();
    service::many(first..times, run, &mut count).await?;
    let after = service.end(&before).await?;
    let counts: Vec<String> = counts
        .into_iter()
        .map(|(what, count): (String, u32)| format!("{count} {what}"))
        .collect();
    Ok(format!(
        "{}\nbefore: {before}\nafter:  {after}",
        counts.join(", ")
    ))
}

/// Runs one script; returns its end and whether its interpreter had waited.
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
    let kind = service::verdict(&response)?;
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
