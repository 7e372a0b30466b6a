//! One way to run a service as a program of its own.
//!
//! Every service starts in the same order: settings, telemetry, signals, listener, the service
//! itself, recovery alongside serving; and ends in the reverse order.

use std::io::{ErrorKind, Write, stderr, stdout};
use std::{future::Future, path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use ::settings::{EXIT_CONFIG, Settings};
use clap::{Arg, ArgAction, Command, value_parser};
use telemetry::TelemetrySettings;
use tonic::Status;

use crate::{Door, Need, Server, ServerSettings, Services, Shutdown};

/// The exit code of a process that is to be started again, EX_TEMPFAIL of sysexits.h.
const EXIT_RESTART: i32 = 75;

/// The settings do not fit the installation, so that the program ends with exit code 78, as for settings that are
/// wrong.
#[derive(Debug, thiserror::Error)]
#[error("{0:#}")]
pub struct Misplaced(pub anyhow::Error);

/// A service that can run as a program.
pub trait Program: Sized + Send + Sync + 'static {
    /// The settings of the service.
    type Settings: Settings + Clone + Send + Sync;

    /// The name of the program.
    const NAME: &'static str;

    /// The description of the service, for `--help`.
    const ABOUT: &'static str;

    /// Returns the settings of the server.
    fn server(settings: &Self::Settings) -> &ServerSettings;

    /// Returns the settings of traces, metrics and logs.
    fn telemetry(settings: &Self::Settings) -> &TelemetrySettings;

    /// Puts the service together, with its peers at the addresses of the settings.
    ///
    /// # Errors
    /// The resource that cannot be opened or used.
    fn build(settings: Self::Settings) -> impl Future<Output = anyhow::Result<Self>> + Send;

    /// Returns the services that a server offers.
    fn services(&self) -> Services;

    /// Returns the router for requests other than gRPC; only with it is HTTP/1.1 accepted. Default:
    /// none.
    fn http(&self) -> Option<axum::Router> {
        None
    }

    /// Returns the door of a server that clients call. Default: none, as only peers call.
    fn door(&self) -> Option<Arc<dyn Door>> {
        None
    }

    /// Returns the names for health checks of parts that do not work, such as plugins that were left
    /// out. Default: none.
    fn broken_parts(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns the needs of the service for its work.
    ///
    /// # Errors
    /// An address that is not valid.
    fn needs(&self, settings: &Self::Settings) -> anyhow::Result<Vec<Need>>;

    /// Continues the open work of the previous process, while the server serves. Default: nothing.
    ///
    /// # Errors
    /// A storage that does not work; it is logged.
    fn recover(&self) -> impl Future<Output = anyhow::Result<()>> + Send {
        async { Ok(()) }
    }

    /// Ends work in time that would outlast the drain, alongside serving. Default: nothing.
    fn drain(&self, shutdown: Shutdown, grace: Duration) -> impl Future<Output = ()> + Send {
        drop((shutdown, grace));
        async {}
    }

    /// Waits until others may have taken over the work of this process, and returns the reason. Default: never.
    fn lost(&self) -> impl Future<Output = String> + Send {
        std::future::pending()
    }

    /// Ends all tasks.
    fn shutdown(&self) -> impl Future<Output = ()> + Send;
}

/// Runs a service until a signal ends it. Wrong settings are reported all at once, with exit code 78, as is
/// [`Misplaced`]; any other failure to start, with exit code 1.
pub async fn run<P: Program>() -> ExitCode {
    let arguments = command::<P>().get_matches();
    let config: Option<&PathBuf> = arguments.get_one("config");
    let loaded = match ::settings::load::<P::Settings>(config.map(PathBuf::as_path), &[]) {
        Ok(loaded) => loaded,
        Err(error) => return ::settings::report_and_exit_code(&error),
    };
    if arguments.get_flag("print-settings") {
        print(&loaded.effective(P::NAME, |_| true));
        return ExitCode::SUCCESS;
    }
    match serve::<P>(loaded.settings).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => report_and_exit_code(&error),
    }
}

async fn serve<P: Program>(settings: P::Settings) -> anyhow::Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    let telemetry = telemetry::init(P::telemetry(&settings), P::NAME, version)?;
    let shutdown = Shutdown::on_signals()?;
    let server = P::server(&settings).clone();
    let listener = crate::bind(&server).await?;
    let service = Arc::new(P::build(settings.clone()).await?);

    let grace = server.drain_grace;
    let mut server = Server::new(server, service.services()).needs(service.needs(&settings)?);
    if let Some(router) = service.http() {
        server = server.http(router);
    }
    if let Some(door) = service.door() {
        server = server.door(door);
    }
    let health = server.health();
    for part in service.broken_parts() {
        health.set(&part, false).await;
    }
    let recovering = Arc::clone(&service);
    let recovery = tokio::spawn(async move {
        if let Err(error) = recovering.recover().await {
            tracing::error!(error = format!("{error:#}"), "earlier runs are not resumed");
        }
    });
    let losing = Arc::clone(&service);
    let loss = tokio::spawn(async move { exit_for_restart(&losing.lost().await) });
    let (draining, end) = (Arc::clone(&service), shutdown.clone());
    let drain = tokio::spawn(async move { draining.drain(end, grace).await });
    server.serve(listener, shutdown).await?;
    recovery.abort();
    drain.abort();
    loss.abort();
    service.shutdown().await;
    telemetry.shutdown().await;
    Ok(())
}

/// Prints text on standard output as it is. The program ends when its reader has read enough, as `head`
/// does.
pub fn print(text: &str) {
    let mut stdout = stdout().lock();
    let written = stdout.write_all(text.as_bytes());
    if let Err(error) = written.and_then(|()| stdout.flush()) {
        let is_enough = error.kind() == ErrorKind::BrokenPipe;
        std::process::exit(i32::from(!is_enough));
    }
}

/// Ends the process at once, to be started again, with exit code 75: others may have taken over its work.
pub fn exit_for_restart(reason: &str) -> ! {
    let _ = writeln!(stderr(), "error: {reason}");
    std::process::exit(EXIT_RESTART)
}

/// Prints the error that ended a program on standard error, and returns the exit code.
pub fn report_and_exit_code(error: &anyhow::Error) -> ExitCode {
    // Standard error may be closed; there is no other place to report to.
    let _ = writeln!(stderr(), "error: {}", message_of(error));
    match error.chain().any(|cause| cause.is::<Misplaced>()) {
        true => ExitCode::from(EXIT_CONFIG),
        false => ExitCode::FAILURE,
    }
}

/// Returns an error with its causes on one line; of a status only the message, which has its causes.
fn message_of(error: &anyhow::Error) -> String {
    let mut causes = Vec::new();
    for cause in error.chain() {
        if let Some(status) = cause.downcast_ref::<Status>() {
            causes.push(status.message().to_owned());
            break;
        }
        causes.push(cause.to_string());
    }
    causes.join(": ")
}

fn command<P: Program>() -> Command {
    let config = Arg::new("config")
        .long("config")
        .value_name("FILE")
        .value_parser(value_parser!(PathBuf))
        .help(format!(
            "A TOML file with settings [env: {}_CONFIG]; environment variables win over it",
            P::Settings::PREFIX
        ));
    let print = Arg::new("print-settings")
        .long("print-settings")
        .action(ArgAction::SetTrue)
        .help("Print the settings in force (meaning, value, source, default) and exit");
    Command::new(P::NAME)
        .about(P::ABOUT)
        .version(env!("CARGO_PKG_VERSION"))
        .args([config, print])
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn settings_that_do_not_fit_the_installation_end_a_program_as_wrong_ones_do() {
        let cause = || anyhow::anyhow!("a key exists").context("cannot start");
        let misplaced = anyhow::Error::from(Misplaced(cause()));
        assert_eq!(message_of(&misplaced), "cannot start: a key exists");
        assert_eq!(report_and_exit_code(&misplaced), ExitCode::from(78));
        assert_eq!(report_and_exit_code(&cause()), ExitCode::FAILURE);
    }

    #[test]
    fn an_error_is_its_causes_and_a_status_its_message() {
        let status = || Err::<(), _>(Status::unavailable("no server listens"));
        for (error, expected) in [
            (anyhow::anyhow!("no room"), "no room"),
            (
                anyhow::anyhow!("no room").context("cannot start"),
                "cannot start: no room",
            ),
            (
                status().context("not ready").unwrap_err(),
                "not ready: no server listens",
            ),
        ] {
            assert_eq!(message_of(&error), expected);
        }
    }
}
