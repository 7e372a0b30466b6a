//! The end of a script against its time limit.

use std::{sync::Arc, time::Duration};

use anyhow::{bail, ensure};
use contracts::tavern::sandbox::v1::{Collect, ExecuteRequest, Limits, verdict::Kind};

use crate::{
    race::Aim,
    service::{self, Level, Service},
};

/// The limit that is raced against.
const LIMIT: Duration = Duration::from_millis(150);

const ENDED: &str = "ended by themselves";
const STOPPED: &str = "were stopped";

/// Lets `times` scripts end about when their time is up.
///
/// # Errors
/// A script whose verdict, output and files do not fit together, or any remains.
pub(crate) async fn run(times: u32) -> anyhow::Result<String> {
    let aim = Arc::new(Aim::at(Duration::from_millis(140)));
    let one = |service: Service, _| one(service, aim.clone());
    service::race(&Level::BOTH, times, &[ENDED, STOPPED], one).await
}

async fn one(service: Service, aim: Arc<Aim>) -> anyhow::Result<&'static str> {
    let source = format!(
        "echo half > kept; echo begun; sleep {}; echo done; exit 7",
        aim.time().as_secs_f64()
    );
    let response = service
        .run(ExecuteRequest {
            limits: Some(Limits {
                wall_time: LIMIT.try_into().ok(),
                ..service::patient()
            }),
            collect: Some(Collect::default()),
            ..service::request("bash", source)
        })
        .await?;
    let direction = match service::verdict(&response)? {
        Kind::Exited(exited) => {
            aim.later();
            ensure!(exited.code == 7, "a script ended with {exited:?}");
            ensure!(response.stdout == b"begun\ndone\n", "{response:?}");
            ENDED
        }
        Kind::Wall(wall) => {
            aim.earlier();
            let observed: Duration = wall.observed.unwrap_or_default().try_into()?;
            ensure!(observed >= LIMIT, "stopped before its time: {wall:?}");
            // On a busy machine its time may be up before it has begun.
            ensure!(
                b"begun\ndone\n".starts_with(&response.stdout),
                "{response:?}"
            );
            STOPPED
        }
        other => bail!("a script ended with {other:?}"),
    };
    let begun = response.stdout.starts_with(b"begun\n");
    let collected = response.collected.unwrap_or_default();
    for file in &collected.files {
        let whole = !file.is_blob && (file.content == b"half\n" || !begun);
        ensure!(file.path == "kept" && whole, "{file:?}");
    }
    ensure!(
        collected.files.len() == 1 || !begun,
        "a file was lost: {collected:?}"
    );
    Ok(direction)
}
