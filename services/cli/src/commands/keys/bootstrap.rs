//! `tavern keys bootstrap`: the first key of an installation.

use std::io::ErrorKind;
use std::net::IpAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;
use contracts::tavern::common::v1::{Run, RunState};
use contracts::tavern::registry::v1::{BootstrapRequest, BootstrapResponse, GetCallerRequest};
use contracts::tavern::run::v1::ListRunsRequest;
use contracts::tavern::run::v1::run_service_client::RunServiceClient;
use contracts::tavern::workflow::v1::schedule_service_client::ScheduleServiceClient;
use contracts::tavern::workflow::v1::{ListSchedulesRequest, Schedule};
use grpc_kit::Outbound;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::{Code, Status};

use super::super::{Remote, print, print_table, refusal, state_of};
use super::{Delivery, Identities, Out, days};

/// The longest wait for a connection, by which a server is known to serve.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The number of runs and of schedules that are listed.
const LISTED: usize = 5;

/// The states of open runs.
const OPEN: [RunState; 4] = [
    RunState::Running,
    RunState::Waiting,
    RunState::Paused,
    RunState::Queued,
];

/// The first key to make.
#[derive(Args)]
pub struct Bootstrap {
    /// The name of the first principal, which has the role admin.
    #[arg(long, default_value = "admin")]
    name: String,
    /// The life of its key in days, 1 to 365.
    #[arg(long, default_value_t = 365, value_parser = days())]
    days: u32,
    #[command(flatten)]
    out: Out,
}

impl Bootstrap {
    /// Makes the key at a running Tavern, which is reached over loopback, and lists the open runs and the
    /// schedules that pass to the new principal.
    ///
    /// # Errors
    /// The reason why the command failed.
    pub async fn execute(self, remote: &Remote) -> anyhow::Result<ExitCode> {
        let made = async {
            ensure!(
                is_loopback(&remote.address),
                "the first key is made over loopback only, and {} is elsewhere: run this on the machine of \
                 the server",
                remote.address
            );
            // The file of the key may be the file to make.
            let connection = remote.connect_with(None)?;
            let mut identities = Identities::new(connection.clone());
            let name = self.name.clone();
            self.made(remote, async |request| {
                if !remote.json && is_open(&mut identities).await? {
                    list_inherited(connection, &name).await?;
                }
                let made = identities.bootstrap(request).await;
                Ok(made.map_err(|status| refusal(&status))?.into_inner())
            })
            .await
        };
        remote.located(made.await)
    }

    /// Makes the key by `make`, and hands it over.
    ///
    /// # Errors
    /// A key that could not be handed over, which is found before `make` is called, or an error of `make`.
    pub async fn made(
        self,
        remote: &Remote,
        make: impl AsyncFnOnce(BootstrapRequest) -> anyhow::Result<BootstrapResponse>,
    ) -> anyhow::Result<ExitCode> {
        let delivery = Delivery::prepare(self.out.out)?;
        let request = BootstrapRequest {
            principal: self.name.clone(),
            days: self.days,
        };
        let made = make(request).await?;
        delivery.deliver(made, &self.name, remote.json)?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Remote {
    /// Whether a server listens at the address. Waits until it answers: it has opened its stores then.
    ///
    /// # Errors
    /// A failure that leaves it open, such as a name that cannot be resolved, and a server that is no Tavern.
    pub async fn is_served(&self) -> anyhow::Result<bool> {
        let unknown = || format!("whether a Tavern listens at {} is unknown", self.address);
        let uri: http::Uri = self.address.parse().with_context(unknown)?;
        let host = uri.host().with_context(unknown)?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let usual = match uri.scheme_str() {
            Some("https") => 443,
            _ => 80,
        };
        let to = (host, uri.port_u16().unwrap_or(usual));
        let connected = timeout(CONNECT_TIMEOUT, TcpStream::connect(to)).await;
        match connected.with_context(unknown)? {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => return Ok(false),
            Err(error) => return Err(error).with_context(unknown),
        }
        let answered = grpc_kit::check_liveness(&self.settings()).await;
        answered.with_context(unknown)?;
        Ok(true)
    }
}

/// Whether an address is on this machine.
fn is_loopback(address: &str) -> bool {
    let uri: Option<http::Uri> = address.parse().ok();
    uri.as_ref().and_then(http::Uri::host).is_some_and(|host| {
        let ip = host.trim_start_matches('[').trim_end_matches(']');
        let ip = ip.parse::<IpAddr>();
        host.eq_ignore_ascii_case("localhost") || ip.is_ok_and(|ip| ip.is_loopback())
    })
}

/// Whether no key exists yet.
async fn is_open(identities: &mut Identities) -> anyhow::Result<bool> {
    match identities.get_caller(GetCallerRequest {}).await {
        Ok(found) => Ok(found.into_inner().caller.is_some_and(|caller| caller.open)),
        // The bootstrap itself is refused next, with its reason.
        Err(status) if status.code() == Code::Unauthenticated => Ok(false),
        Err(status) => Err(refusal(&status)),
    }
}

/// Prints the open runs and the schedules, all of which `local` started, and which act for the new principal from
/// now on.
async fn list_inherited(connection: Outbound, principal: &str) -> anyhow::Result<()> {
    let mut service = RunServiceClient::new(connection.clone());
    let mut runs = Vec::new();
    for state in OPEN {
        let open = pages(async |page_token| {
            let request = ListRunsRequest {
                state: state.into(),
                page_token,
                ..ListRunsRequest::default()
            };
            let page = service.list_runs(request).await?.into_inner();
            Ok((page.runs, page.next_page_token))
        });
        runs.extend(open.await?);
    }
    let mut service = ScheduleServiceClient::new(connection);
    let schedules = pages(async |page_token| {
        let request = ListSchedulesRequest {
            page_token,
            ..ListSchedulesRequest::default()
        };
        let page = service.list_schedules(request).await?.into_inner();
        Ok((page.schedules, page.next_page_token))
    });
    let schedules = schedules.await?;
    print(&inherited(runs.len(), schedules.len(), principal));
    print_table(&rows(&runs, &schedules), None);
    Ok(())
}

/// Returns everything that a list has.
async fn pages<T>(
    mut page: impl AsyncFnMut(String) -> Result<(Vec<T>, String), Status>,
) -> anyhow::Result<Vec<T>> {
    let mut all = Vec::new();
    let mut token = String::new();
    loop {
        let (items, next) = page(token).await.map_err(|status| refusal(&status))?;
        all.extend(items);
        if next.is_empty() {
            return Ok(all);
        }
        token = next;
    }
}

/// Returns the line that counts the runs and schedules which pass to a principal.
fn inherited(runs: usize, schedules: usize, principal: &str) -> String {
    let count = |count: usize, word: &str| match count {
        1 => format!("1 {word}"),
        count => format!("{count} {word}s"),
    };
    let (runs, schedules) = (count(runs, "open run"), count(schedules, "schedule"));
    format!("{runs} and {schedules} of local act for {principal} from now on\n")
}

/// Returns the rows of the first runs and schedules.
fn rows(runs: &[Run], schedules: &[Schedule]) -> Vec<Vec<String>> {
    let more = |all: usize| {
        let rest = all.saturating_sub(LISTED);
        (rest > 0).then(|| vec![format!("… and {rest} more"), String::new(), String::new()])
    };
    let listed = runs.iter().take(LISTED);
    let mut rows: Vec<_> = listed
        .map(|run| vec![run.run_id.clone(), run.subject.clone(), state_of(run)])
        .collect();
    rows.extend(more(runs.len()));
    rows.extend(schedules.iter().take(LISTED).map(|schedule| {
        let words = ["schedule".to_owned()];
        [
            &[schedule.schedule_id.clone(), schedule.workflow_id.clone()],
            &words[..],
        ]
        .concat()
    }));
    rows.extend(more(schedules.len()));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_this_machine_are_loopback() {
        for (address, expected) in [
            ("http://127.0.0.1:7401", true),
            ("http://127.9.9.9", true),
            ("http://[::1]:7401", true),
            ("http://localhost:7401", true),
            ("http://LOCALHOST:7401", true),
            ("http://10.0.0.1:7401", false),
            ("http://0.0.0.0:7401", false),
            ("http://localhost.example.com:7401", false),
            ("http://[2001:db8::1]:7401", false),
            ("no address", false),
            ("", false),
        ] {
            assert_eq!(is_loopback(address), expected, "{address}");
        }
    }

    #[test]
    fn what_passes_to_the_first_principal_is_counted_and_the_first_are_listed() {
        assert_eq!(
            inherited(1, 0, "admin"),
            "1 open run and 0 schedules of local act for admin from now on\n"
        );
        let runs: Vec<Run> = (0..7)
            .map(|number| Run {
                run_id: format!("flow_{number}"),
                state: RunState::Waiting.into(),
                ..Run::default()
            })
            .collect();
        let schedule = Schedule {
            schedule_id: "nightly".to_owned(),
            workflow_id: "backup".to_owned(),
            ..Schedule::default()
        };
        let rows = rows(&runs, &[schedule]);
        let first: Vec<&str> = rows.iter().map(|row| row[0].as_str()).collect();
        assert_eq!(
            first,
            [
                "flow_0",
                "flow_1",
                "flow_2",
                "flow_3",
                "flow_4",
                "… and 2 more",
                "nightly"
            ]
        );
        assert_eq!(rows[0][2], "waiting");
        assert_eq!(rows[6], ["nightly", "backup", "schedule"]);
    }
}
