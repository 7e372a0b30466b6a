//! `tavern demo`.

use std::path::PathBuf;
use std::process::ExitCode;

use all_in_one::{Tavern, TavernSettings};
use cli::approvals;
use contracts::tavern::sandbox::v1::{
    Collect, ExecuteRequest, ListRuntimesRequest, execute_request::Program,
};
use grpc_kit::program::print;

use crate::serve;

/// Plays every transcript on all five services in this process, on SQLite in a fresh directory.
pub(crate) async fn demo(
    mut settings: TavernSettings,
    examples: Option<PathBuf>,
) -> anyhow::Result<ExitCode> {
    let directory = tempfile::Builder::new().prefix("tavern-demo-").tempdir()?;
    settings.packages_dir = settings.packages_dir();
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
    print(&format!("\nchart: {}\n", chart(&tavern).await?));
    tavern.shutdown().await;
    telemetry.shutdown().await;
    Ok(code)
}

/// The set of the chart.
const SET: &str = "data";

/// A chart in a few lines, as a model would write them.
const CHART: &str = "import pandas, matplotlib.pyplot
pandas.DataFrame({'sum': [3, 1, 4, 1, 5]}).plot()
matplotlib.pyplot.savefig('chart.png')
";

/// Draws a chart with the package set `data`, and describes it; says how to build the set where it is missing.
async fn chart(tavern: &Tavern) -> anyhow::Result<String> {
    let mut sandbox = tavern.sandbox();
    let runtimes = sandbox
        .list_runtimes(ListRuntimesRequest {})
        .await?
        .into_inner()
        .runtimes;
    let mut sets = runtimes
        .into_iter()
        .flat_map(|runtime| runtime.package_sets);
    if !sets.any(|set| set.name == SET && set.problem.is_empty()) {
        return Ok(format!(
            "the package set `{SET}` is not built; `tavern packages build {SET}` builds it"
        ));
    }
    let request = ExecuteRequest {
        runtime: "python3".to_owned(),
        packages: SET.to_owned(),
        program: Some(Program::SourceText(CHART.to_owned())),
        collect: Some(Collect::default()),
        ..ExecuteRequest::default()
    };
    let response = sandbox.execute(request).await?.into_inner();
    let files = response
        .collected
        .map(|collected| collected.files)
        .unwrap_or_default();
    let chart = files.into_iter().find(|file| file.path == "chart.png");
    Ok(match chart {
        Some(chart) => format!(
            "{} bytes of PNG by pandas and matplotlib, from the package set `{SET}`",
            chart.size_bytes
        ),
        None => format!("none: {}", String::from_utf8_lossy(&response.stderr)),
    })
}
