//! The fate of scripts when their service is killed.

use std::{
    fs::{self, File},
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command},
};

use contracts::tavern::sandbox::v1::{ExecuteRequest, GetIsolationRequest};
use rustix::process::{Pid, Signal, kill_process};

use crate::{
    oracle::{launchers_of, left_behind_by},
    rounds::{as_every_user, program},
    support::{Client, eventually, marker, processes_with, request},
};

/// A service in a process of its own, killed when it is dropped.
pub(crate) struct Service {
    process: Child,
    /// Its address for clients.
    pub(crate) uri: String,
    client: Client,
    log: PathBuf,
}

impl Service {
    /// Starts a service at a level, with its files below a directory.
    pub(crate) async fn start(level: &str, directory: &Path) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let log = directory.join(format!("log-{}", address.port()));
        let process = Command::new(program("script-sandbox"))
            .env("TAVERN_SANDBOX__SERVER__LISTEN", address.to_string())
            .env("TAVERN_SANDBOX__LOWEST_ISOLATION", "reduced")
            .env("TAVERN_SANDBOX__HIGHEST_ISOLATION", level)
            .env(
                "TAVERN_SANDBOX__SCRATCH_DIRECTORY",
                directory.join("scratch"),
            )
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let uri = format!("http://{address}");
        let settings = grpc_kit::ClientSettings::to(&uri);
        let mut client = Client::new(grpc_kit::remote(&settings).unwrap().outermost());
        eventually("the service listens", || {
            std::net::TcpStream::connect(address).is_ok()
        })
        .await;
        // It listens from its beginning and answers once it is ready.
        client.get_isolation(GetIsolationRequest {}).await.unwrap();
        Self {
            process,
            uri,
            client,
            log,
        }
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Three processes: the first one, one that ends with it, and one that has left its group.
async fn begin(service: &Service) -> String {
    let marker = marker();
    let source = format!("setsid sleep {marker} & sleep {marker} & echo ready; sleep {marker}");
    let asked = ExecuteRequest {
        caller_id: "ada".to_owned(),
        effect_id: marker.clone(),
        ..request("bash", &source)
    };
    let mut client = service.client.clone();
    tokio::spawn(async move { client.execute(asked).await });
    let sleepers = format!("sleep\0{marker}");
    eventually("three sleepers sleep", || {
        processes_with(&sleepers).len() == 3
    })
    .await;
    marker
}

pub(crate) fn scratch(directory: &Path) -> PathBuf {
    let scratch = directory.join("scratch");
    fs::create_dir(&scratch).unwrap();
    fs::set_permissions(&scratch, fs::Permissions::from_mode(0o711)).unwrap();
    scratch
}

fn entries(directory: &Path) -> usize {
    fs::read_dir(directory).unwrap().count()
}

#[test]
fn a_script_does_not_outlive_its_service_and_its_start_is_on_record() {
    as_every_user(async || {
        for level in ["full", "reduced"] {
            let directory = tempfile::tempdir().unwrap();
            fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o711)).unwrap();
            scratch(directory.path());
            let mut service = Service::start(level, directory.path()).await;
            let marker = begin(&service).await;
            service.kill();
            eventually("no process is left", || processes_with(&marker).is_empty()).await;
            let log = fs::read_to_string(&service.log).unwrap();
            let started = log.lines().filter(|line| {
                ["event=\"started\"", "caller_id=\"ada\"", &marker]
                    .iter()
                    .all(|part| line.contains(part))
            });
            assert_eq!(started.count(), 1, "{level}: {log}");
        }
    });
}

#[test]
fn a_service_ends_and_removes_what_a_killed_one_has_left() {
    as_every_user(async || {
        for level in ["full", "reduced"] {
            let directory = tempfile::tempdir().unwrap();
            fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o711)).unwrap();
            let scratch = scratch(directory.path());
            let mut service = Service::start(level, directory.path()).await;
            let marker = begin(&service).await;
            // The start of another service takes nothing from a living neighbour.
            let neighbour = Service::start(level, directory.path()).await;
            let beside = begin(&neighbour).await;
            let id = service.process.id();
            let launchers = launchers_of(id);
            // As when a whole process group or container is killed: no process is left that could
            // end the script.
            for launcher in launchers {
                let pid = Pid::from_raw(i32::try_from(launcher).unwrap()).unwrap();
                kill_process(pid, Signal::STOP).unwrap();
                service.process.kill().unwrap();
                kill_process(pid, Signal::KILL).unwrap();
            }
            service.kill();
            if level == "reduced" {
                assert!(!processes_with(&marker).is_empty());
                assert_eq!(entries(&scratch), 2);
            }
            let _next = Service::start(level, directory.path()).await;
            assert!(processes_with(&marker).is_empty(), "{level}");
            eventually("what was left is gone", || {
                left_behind_by(&scratch, id).is_empty()
            })
            .await;
            let beside = format!("sleep\0{beside}");
            assert_eq!(processes_with(&beside).len(), 3, "{level}");
            assert_eq!(entries(&scratch), usize::from(level == "reduced"));
        }
    });
}
