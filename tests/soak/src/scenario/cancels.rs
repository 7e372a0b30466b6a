//! The end of a script against a caller that disconnects.

use std::{sync::Arc, time::Duration};

use anyhow::ensure;
use contracts::tavern::sandbox::v1::verdict::Kind;

use crate::{
    race::Aim,
    service::{self, Level, Service},
};

const ANSWERED: &str = "were answered";
const LEFT: &str = "were left by their callers";

/// Abandons `times` scripts about when they end, and repeats the request of each.
///
/// # Errors
/// A script that has two ends, or any remains.
pub(crate) async fn run(times: u32) -> anyhow::Result<String> {
    let aim = Arc::new(Aim::at(Duration::from_millis(60)));
    let one = |service: Service, _| one(service, aim.clone());
    service::race(&Level::BOTH, times, &[ANSWERED, LEFT], one).await
}

async fn one(service: Service, aim: Arc<Aim>) -> anyhow::Result<&'static str> {
    let source = "setsid sleep 1000 & sleep 0.02; echo done; exit 7";
    let request = service::request("bash", source.to_owned());
    let Ok(answer) = tokio::time::timeout(aim.time(), service.run(request)).await else {
        aim.later();
        return Ok(LEFT);
    };
    aim.earlier();
    let answer = answer?;
    let whole = matches!(service::verdict(&answer)?, Kind::Exited(exited) if exited.code == 7);
    ensure!(whole && answer.stdout == b"done\n", "{answer:?}");
    Ok(ANSWERED)
}
