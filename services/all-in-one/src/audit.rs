//! `tavern audit verify`: at a running Tavern, or in the data of a stopped one.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use cli::{Remote, audit};
use tool_registry::AuditSettings;

use crate::at_rest::AtRest;

/// Recompute the chain of all records. The exit code is 0 if it is whole, 1 if a record is not as it was written, and
/// 2 if the file cannot be read.
#[derive(Args)]
pub(crate) struct VerifyAnywhere {
    #[command(flatten)]
    verify: audit::Verify,
    #[command(flatten)]
    place: AtRest,
    /// The retention of the audit in the settings of that Tavern: days that are older are missing rightly.
    #[arg(
        long,
        value_name = "DURATION",
        env = "TAVERN_REGISTRY__AUDIT__RETENTION",
        default_value = "400d",
        value_parser = duration
    )]
    retention: Duration,
}

fn duration(text: &str) -> Result<Duration, String> {
    settings::duration::parse(text).ok_or_else(|| "give a duration such as 400d".to_owned())
}

impl VerifyAnywhere {
    /// Verifies the records.
    pub(crate) async fn execute(self, remote: &Remote) -> anyhow::Result<ExitCode> {
        if !self.place.is_named() {
            return self.verify.execute(remote).await;
        }
        let settings = AuditSettings {
            retention: self.retention,
            ..AuditSettings::default()
        };
        let anchors = self.verify.anchors()?;
        let home = self.place.open().await?;
        let verified = tool_registry::verify_audit(&home, &settings, &anchors).await;
        home.close().await;
        let verified = verified?;
        audit::show_report(&verified, remote.is_json())
    }
}
