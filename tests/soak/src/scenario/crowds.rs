//! Processes that fork, leave their parents and their sessions while they are being killed.

use std::{fs, time::Duration};

use anyhow::{bail, ensure};
use contracts::tavern::sandbox::v1::{ExecuteRequest, Limits, verdict::Kind};

use crate::service::{self, Level, Service};

/// Runners: each is the child of a process that has ended, so that a list of processes is out of
/// date at once. They carry a name of their own, and the last line shows that they are running.
const SOURCE: &str = "
import ctypes, os, time
ctypes.CDLL(None).prctl(15, b'NAME')
def run(change):
    while True:
        try:
            if os.fork(): os._exit(0)
            change()
        except OSError: pass
def nothing(): pass
def double():
    os.setsid()
    if os.fork(): os._exit(0)
r, w = os.pipe()
for change in (nothing, os.setsid, os.setpgrp, double):
    if os.fork() == 0:
        os.close(r); os.close(w)
        run(change)
os.close(w)
os.read(r, 1)
print('running', flush=True)
time.sleep(SLEEP)
";

/// The time limit of a script that is stopped in the midst of it.
const LIMIT: Duration = Duration::from_millis(150);

const ENDED: &str = "behind a script that ended";
const STOPPED: &str = "of a script whose time was up";
const LEFT: &str = "of a script whose caller had gone";

/// Runs `times` crowds that are killed.
///
/// # Errors
/// A crowd with a process that lives on, or any other remains.
pub(crate) async fn run(times: u32) -> anyhow::Result<String> {
    service::race(&Level::BOTH, times, &[ENDED, STOPPED, LEFT], one).await
}

async fn one(service: Service, number: u32) -> anyhow::Result<&'static str> {
    let name = format!("t{:x}-{number:x}", std::process::id());
    let source = |sleep: &str| SOURCE.replace("NAME", &name).replace("SLEEP", sleep);
    let limited = |sleep: &str, wall_time: Duration| ExecuteRequest {
        limits: Some(Limits {
            wall_time: wall_time.try_into().ok(),
            // The crowd is here to outrun the blow and not to be too large.
            processes: Some(500),
            ..service::patient()
        }),
        ..service::request("python3", source(sleep))
    };
    if number.is_multiple_of(3) {
        let call = service.run(limited("1000", Duration::from_secs(300)));
        if let Ok(answered) =
            tokio::time::timeout(LIMIT + Duration::from_millis(u64::from(number % 50)), call).await
        {
            bail!("a script that sleeps ended: {:?}", answered?);
        }
        let mut patience = 3000;
        while alive(&name) > 0 {
            patience -= 1;
            ensure!(patience > 0, "{} of a crowd live on", alive(&name));
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        return Ok(LEFT);
    }
    let request = match number % 3 {
        1 => limited("0", Duration::from_secs(300)),
        _ => limited("1000", LIMIT),
    };
    let response = service.run(request).await?;
    // The answer arrives when no process is left, so there is no wait here.
    let left = alive(&name);
    ensure!(
        left == 0,
        "{left} of a crowd live on: {:?}",
        response.verdict
    );
    match (service::verdict(&response)?, number % 3) {
        (Kind::Exited(exited), 1) if exited.code == 0 && response.stdout == b"running\n" => {
            Ok(ENDED)
        }
        (Kind::Wall(_), 2) => Ok(STOPPED),
        (other, _) => bail!(
            "a crowd ended with {other:?}: {}",
            String::from_utf8_lossy(&response.stderr)
        ),
    }
}

/// Returns the number of processes of this machine that have this name.
fn alive(name: &str) -> usize {
    let name = format!("({name})");
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| {
            let stat = fs::read_to_string(entry.path().join("stat"));
            stat.is_ok_and(|stat| stat.contains(&name))
        })
        .count()
}
