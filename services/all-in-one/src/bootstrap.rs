//! `tavern keys bootstrap`: the first key, at a running Tavern or in the data of a stopped one.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::ensure;
use clap::Args;
use cli::{Remote, keys};
use tokio::time::{Instant, sleep};

use crate::at_rest::AtRest;

/// The time in which a Tavern that was started just before begins to listen.
const BEGINNING: Duration = Duration::from_secs(1);

/// The time between two attempts to reach it.
const PAUSE: Duration = Duration::from_millis(50);

/// The first key, and the place of the data.
#[derive(Args)]
pub(crate) struct FirstKey {
    #[command(flatten)]
    first: keys::Bootstrap,
    #[command(flatten)]
    place: AtRest,
    /// The keys of the principal are lost: revoke them, and make another in the data of a stopped Tavern.
    #[arg(long)]
    lost: bool,
}

impl FirstKey {
    /// Makes the first key.
    pub(crate) async fn execute(self, remote: &Remote) -> anyhow::Result<ExitCode> {
        if !self.place.is_named() {
            ensure!(
                !self.lost,
                "lost keys are replaced in the data of a stopped Tavern: name its place by `--data-dir` or `--database`"
            );
            return self.first.execute(remote).await;
        }
        let latest = Instant::now() + BEGINNING;
        while !remote.is_served().await? {
            if Instant::now() > latest {
                return at_rest(self.first, remote, &self.place, self.lost).await;
            }
            sleep(PAUSE).await;
        }
        ensure!(
            !self.lost,
            "lost keys are replaced in the data of a stopped Tavern, and one listens at {}",
            remote.address()
        );
        if let Some(data_dir) = self.place.data_dir() {
            ensure!(
                tool_registry::is_in_use(data_dir)?,
                "a Tavern listens at {}, and {} is not its data directory: name the address of the other one \
                 by `--address`, or one at which none listens",
                remote.address(),
                data_dir.display()
            );
        }
        self.first.execute(remote).await
    }
}

/// Makes the key in the data of a Tavern that does not run.
async fn at_rest(
    first: keys::Bootstrap,
    remote: &Remote,
    place: &AtRest,
    lost: bool,
) -> anyhow::Result<ExitCode> {
    let make = async |request| {
        let home = place.open().await?;
        let made = match lost {
            true => tool_registry::replace_lost_keys(&home, request).await,
            false => tool_registry::bootstrap_offline(&home, request).await,
        };
        home.close().await;
        Ok(made?)
    };
    first.made(remote, make).await
}
