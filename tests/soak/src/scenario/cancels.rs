//! The end of a script against a caller that disconnects.

use std::{sync::Arc, time::Duration};

use anyhow::{bail, ensure};
use contracts::tavern::sandbox::v1::{ExecuteRequest, ExecuteResponse, verdict::Kind};

use crate::{
    race::Aim,
    service::{self, Level, Service},
};

const ANSWERED: &str = "were answered";
const CANCELLED: &str = "were cancelled";
const TOO_LATE: &str = "had ended, or had not begun, when their callers went";

/// Abandons `times` scripts about when they end, and repeats the request of each.
///
/// # Errors
/// A script that has two ends, or any remains.
pub(crate) async fn run(times: u32) -> anyhow::Result<String> {
    let aim = Arc::new(Aim::at(Duration::from_millis(60)));
    let one = |service: Service, number| one(service, aim.clone(), number);
    service::race(&Level::BOTH, times, &[ANSWERED, CANCELLED, TOO_LATE], one).await
}

async fn one(service: Service, aim: Arc<Aim>, number: u32) -> anyhow::Result<&'static str> {
    let source = "setsid sleep 1000 & sleep 0.02; echo done; exit 7";
    let request = ExecuteRequest {
        request_id: format!("cancel-{number}"),
        ..service::request("bash", source.to_owned())
    };
    let first = tokio::time::timeout(aim.time(), service.run(request.clone())).await;
    let second = service.run(request.clone()).await?;
    let ended = is_whole(&second)?;
    let third = service.run(request).await?;
    ensure!(third.replayed, "a third run");
    ensure!(
        (&third.verdict, &third.stdout) == (&second.verdict, &second.stdout),
        "two ends: {second:?} and {third:?}"
    );
    let Ok(first) = first else {
        aim.later();
        return Ok(if ended { TOO_LATE } else { CANCELLED });
    };
    aim.earlier();
    let first = first?;
    ensure!(is_whole(&first)? && ended, "an answer was taken back");
    ensure!(
        second.replayed && first.verdict == second.verdict,
        "a second run"
    );
    Ok(ANSWERED)
}

/// Whether a script reached its own end; otherwise it was cancelled.
fn is_whole(response: &ExecuteResponse) -> anyhow::Result<bool> {
    match service::verdict(response)? {
        Kind::Exited(exited) if exited.code == 7 && response.stdout == b"done\n" => Ok(true),
        Kind::Cancelled(_) if b"done\n".starts_with(&response.stdout) => Ok(false),
        _ => bail!("{response:?}"),
    }
}
