//! `tavern demo`.

use std::path::PathBuf;
use std::process::ExitCode;

use all_in_one::{Tavern, TavernSettings};
use cli::approvals;
use grpc_kit::program::print;

use crate::serve;

/// Plays every transcript on all five services in this process, on SQLite in a fresh directory.
pub(crate) async fn demo(
    mut settings: TavernSettings,
    examples: Option<PathBuf>,
) -> anyhow::Result<ExitCode> {
    let directory = tempfile::Builder::new().prefix("tavern-demo-").tempdir()?;
    settings.data_dir = directory.path().to_owned();
    if settings.telemetry.log_filter == telemetry::TelemetrySettings::default().log_filter {
        // The timelines are the log of a demonstration.
        settings.telemetry.log_filter = format!("error,{}=off", telemetry::AUDIT_TARGET);
    }
    let telemetry = telemetry::init(&settings.telemetry, "tavern", env!("CARGO_PKG_VERSION"))?;
    let examples = examples.unwrap_or_else(|| settings.deploy_dir.join("examples"));
    let key = approvals::new_key();
    let file = approvals::with_approver(&settings.approvals_file(), "demo", &key)?;
    settings.approvals_file = directory.path().join("approvals.json");
    std::fs::write(&settings.approvals_file, file)?;
    let tavern = Tavern::build(&settings).await?;
    print(&format!(
        "scripts: {}\n\n",
        serve::isolation(&tavern).await?
    ));
    let transport = grpc_kit::local(&tavern.services());
    let deciders = transport.authorized(cli::Key::new(&key)?.bearer());
    let code = cli::play_all(transport.outermost(), deciders.outermost(), &examples).await?;
    tavern.shutdown().await;
    telemetry.shutdown().await;
    Ok(code)
}
