//! `tavern serve`.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;

use all_in_one::{Tavern, TavernSettings};
use anyhow::anyhow;
use contracts::tavern::sandbox::v1::GetIsolationRequest;
use grpc_kit::program::{Misplaced, exit_for_restart};

/// Serves all services until a signal arrives.
pub(crate) async fn serve(settings: TavernSettings) -> anyhow::Result<ExitCode> {
    let telemetry = telemetry::init(&settings.telemetry, "tavern", env!("CARGO_PKG_VERSION"))?;
    let shutdown = grpc_kit::Shutdown::on_signals()?;
    let listener = grpc_kit::bind(&settings.server).await?;
    let address = listener.local_addr()?;
    let tavern = Tavern::build(&settings).await?;
    let home = tavern.home().clone();
    let loss = tokio::spawn(async move { exit_for_restart(&home.lost().await.to_string()) });
    if let Err(refusal) = check_exposure(&tavern, &settings) {
        tavern.shutdown().await;
        return Err(refusal);
    }
    tavern.recover().await?;
    greet(&tavern, &settings, address).await?;
    let grace = settings.server.drain_grace;
    tokio::spawn(tavern.end_scripts_in_time(shutdown.clone(), grace));
    grpc_kit::Server::new(settings.server, tavern.services())
        .http(tavern.http())
        .door(tavern.door())
        .needs([tavern.scripts()])
        .serve(listener, shutdown)
        .await?;
    loss.abort();
    tavern.shutdown().await;
    telemetry.shutdown().await;
    Ok(ExitCode::SUCCESS)
}

/// Refuses an address that other hosts reach while no key exists, without which none of their clients is admitted.
fn check_exposure(tavern: &Tavern, settings: &TavernSettings) -> anyhow::Result<()> {
    if !settings.server.is_exposed() || !tavern.is_open() {
        return Ok(());
    }
    Err(Misplaced(anyhow!(
        "other hosts can reach {}, and no key exists, without which none of their clients is admitted; make the first \
         key by `tavern keys bootstrap {} --out FILE`, or listen on a loopback address",
        settings.server.listen,
        match settings.database.address.is_empty() {
            true => format!("--data-dir {}", settings.data_dir.display()),
            false => format!("--database {}", settings.database.address),
        }
    )))?
}

/// Prints the addresses of the services and a call to paste.
async fn greet(
    tavern: &Tavern,
    settings: &TavernSettings,
    address: SocketAddr,
) -> anyhow::Result<()> {
    let isolation = isolation(tavern).await?;
    let mut data = settings.data_dir.display().to_string();
    let database = &settings.database.address;
    if !database.is_empty() {
        data = format!("{database}, and {data} for files and blobs");
    }
    let (keys, option, header) = match tavern.is_open() {
        true => (
            "none yet, so everyone who reaches this address may do everything; `tavern keys bootstrap` makes the \
             first",
            "",
            "",
        ),
        false => (
            "asked for; `--key-file FILE` or TAVERN_KEY_FILE gives yours, `--token-file` a token",
            " --key-file FILE",
            " --header \"authorization: Bearer $(cat FILE)\"",
        ),
    };
    let (scheme, ca, cacert) = match settings.server.tls.is_on() {
        true => ("https", " --ca CA", " --cacert CA"),
        false => ("http", "", ""),
    };
    let at = match address.ip().is_unspecified() {
        true => SocketAddr::from((Ipv4Addr::LOCALHOST, address.port())),
        false => address,
    };
    let greeting = format!(
        "tavern serves all five services on {address}\n\
         data: {data}\n\
         scripts: {isolation}\n\
         keys: {keys}\n\
         \n\
         try it:\n  \
         target/debug/tavern play --address {scheme}://{at}{ca}{option}\n  \
         curl {scheme}://{at}/tavern.gateway.v1.GatewayService/StartText{cacert}{header} \\\n    \
         --json '{{\"calls\": {{\"text\": \"<ACTION><system:get_current_time/></ACTION>\"}}}}'\n"
    );
    // A server serves whether or not anyone reads this.
    let _ = std::io::stdout().write_all(greeting.as_bytes());
    Ok(())
}

/// Describes the isolation of scripts from the host.
pub(crate) async fn isolation(tavern: &Tavern) -> anyhow::Result<String> {
    let report = tavern
        .sandbox()
        .get_isolation(GetIsolationRequest {})
        .await?
        .into_inner();
    let level = cli::name(report.level().as_str_name(), "ISOLATION_LEVEL_");
    Ok(format!("isolation level {level}; {}", report.statement))
}
