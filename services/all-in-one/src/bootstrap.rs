//! `tavern keys bootstrap`: the first key, at a running Tavern or in the data directory of a stopped one.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::ensure;
use clap::Args;
use cli::{Remote, keys};
use tokio::time::{Instant, sleep};

/// The time in which a Tavern that was started just before begins to listen.
const BEGINNING: Duration = Duration::from_secs(1);

/// The time between two attempts to reach it.
const PAUSE: Duration = Duration::from_millis(50);

/// The first key, and the data directory.
#[derive(Args)]
pub(crate) struct FirstKey {
    #[command(flatten)]
    first: keys::Bootstrap,
    /// The data directory, in which the key is made if no Tavern listens at the address.
    #[arg(long, value_name = "DIRECTORY")]
    data_dir: Option<PathBuf>,
    /// The keys of the principal are lost: revoke them, and make another in the data directory.
    #[arg(long, requires = "data_dir")]
    lost: bool,
}

impl FirstKey {
    /// Makes the first key.
    pub(crate) async fn execute(self, remote: &Remote) -> anyhow::Result<ExitCode> {
        let Some(data_dir) = self.data_dir else {
            return self.first.execute(remote).await;
        };
        let latest = Instant::now() + BEGINNING;
        while !remote.is_served().await? {
            if Instant::now() > latest {
                return at_rest(self.first, remote, &data_dir, self.lost).await;
            }
            sleep(PAUSE).await;
        }
        ensure!(
            !self.lost,
            "lost keys are replaced in the data directory of a stopped Tavern, and one listens at {}",
            remote.address()
        );
        ensure!(
            tool_registry::is_in_use(&data_dir)?,
            "a Tavern listens at {}, and {} is not its data directory: name the address of the other one \
             by `--address`, or one at which none listens",
            remote.address(),
            data_dir.display()
        );
        self.first.execute(remote).await
    }
}

/// Makes the key in the data directory of a Tavern that does not run.
async fn at_rest(
    first: keys::Bootstrap,
    remote: &Remote,
    data_dir: &Path,
    lost: bool,
) -> anyhow::Result<ExitCode> {
    let make = async |request| {
        let made = match lost {
            true => tool_registry::replace_lost_keys(data_dir, request).await,
            false => tool_registry::bootstrap_offline(data_dir, request).await,
        };
        Ok(made?)
    };
    first.made(remote, make).await
}
