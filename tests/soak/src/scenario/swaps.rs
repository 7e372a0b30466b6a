//! Files that are swapped for links at the moment at which they are collected.

use anyhow::{bail, ensure};
use contracts::tavern::sandbox::v1::{Collect, ExecuteRequest, RefusedReason, verdict::Kind};

use crate::service::{self, Level, Service};

/// A process that outlives the script and swaps as fast as it can.
const SOURCE: &str = "
import os
os.symlink('/etc/passwd', 'out')
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.close(1); os.close(2)
        while True:
            open('good', 'w').write('good'); os.rename('good', 'out')
            os.symlink('/etc/passwd', 'link'); os.rename('link', 'out')
            os.mkfifo('pipe'); os.rename('pipe', 'out')
    os._exit(0)
while os.path.islink('out'): pass
";

const FILES: &str = "files were taken";
const LINKS: &str = "links were refused";
const PIPES: &str = "pipes were refused";

/// Collects from `times` scripts that swap.
///
/// # Errors
/// A file with a content that the script did not write, or any remains.
pub(crate) async fn run(times: u32) -> anyhow::Result<String> {
    service::race(&Level::BOTH, times, &[FILES, LINKS, PIPES], one).await
}

async fn one(service: Service, _: u32) -> anyhow::Result<&'static str> {
    let response = service
        .run(ExecuteRequest {
            collect: Some(Collect {
                patterns: vec!["out".to_owned()],
                ..Collect::default()
            }),
            ..service::request("python3", SOURCE.to_owned())
        })
        .await?;
    let verdict = service::verdict(&response)?;
    ensure!(
        matches!(verdict, Kind::Exited(exited) if exited.code == 0),
        "{verdict:?}: {}",
        String::from_utf8_lossy(&response.stderr)
    );
    let collected = response.collected.unwrap_or_default();
    match (&collected.files[..], &collected.refused[..]) {
        ([file], []) => {
            // It may have been cut short between its making and its writing.
            let own = !file.is_blob && b"good".starts_with(&file.content);
            ensure!(own, "{file:?}");
            Ok(FILES)
        }
        ([], [refused]) => match refused.reason() {
            RefusedReason::SymbolicLink => Ok(LINKS),
            RefusedReason::Fifo => Ok(PIPES),
            other => bail!("refused as {other:?}"),
        },
        _ => bail!("{collected:?}"),
    }
}
