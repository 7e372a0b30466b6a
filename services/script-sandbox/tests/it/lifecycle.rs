//! Beginnings and ends: cancellation, crowds, what is left, other users.

use std::{os::unix::process::CommandExt, process::Command, time::Duration};

use script_sandbox::SandboxSettings;

use crate::support::{
    Host, eventually, expect_class, expect_output, limited, processes_with, python, request,
    seconds,
};
use contracts::tavern::sandbox::v1::Limits;

/// What a sandbox could leave on this machine.
fn left_behind() -> Vec<String> {
    let own = format!("tavern-script-{}-", std::process::id());
    let mut found = Vec::new();
    let mut open = vec![std::env::temp_dir(), "/sys/fs/cgroup".into()];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            let path = entry.path();
            if entry.file_name().to_string_lossy().starts_with(&own) {
                found.push(path.display().to_string());
            } else if path.starts_with("/sys/fs/cgroup") && path.is_dir() && !path.is_symlink() {
                open.push(path);
            }
        }
    }
    found
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn own_children() -> usize {
    processes_with("sandbox-launcher")
        .into_iter()
        .filter(|pid| {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            status.contains(&format!("PPid:\t{}\n", std::process::id()))
        })
        .count()
}

#[tokio::test(flavor = "multi_thread")]
async fn e94_losing_the_caller_ends_every_process() {
    for (name, host) in Host::all().await {
        let marker = format!("sleep 987{}.6", name.len());
        let source = format!("setsid {marker} & {marker} & wait");
        let call = tokio::spawn({
            let host = host.clone();
            async move { host.run(request("bash", &source)).await }
        });
        let needle = marker.trim_start_matches("sleep ").to_owned();
        eventually("two sleepers run", || processes_with(&needle).len() >= 2).await;
        call.abort();
        eventually("nobody is left", || {
            !processes_with(&needle).iter().any(|pid| {
                // The script's own command line holds the source's path only.
                std::fs::read_to_string(format!("/proc/{pid}/stat"))
                    .is_ok_and(|stat| !stat.contains(") Z "))
            })
        })
        .await;
        eventually("nothing is left behind", || {
            left_behind().is_empty() && own_children() == 0
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn e95_a_crowd_leaves_nothing() {
    let host = Host::full().await;
    expect_output(&host.python("print(1)").await, "1\n");
    let before = open_descriptors();
    for _ in 0..3 {
        let calls: Vec<_> = (0..50)
            .map(|number| {
                let host = host.clone();
                tokio::spawn(
                    async move { host.run(request("bash", &format!("echo {number}"))).await },
                )
            })
            .collect();
        for (number, call) in calls.into_iter().enumerate() {
            expect_output(&call.await.unwrap(), &format!("{number}\n"));
        }
    }
    eventually("nothing is left behind", || {
        left_behind().is_empty() && own_children() == 0
    })
    .await;
    // Users and threads of the runtime may have been added, one descriptor each.
    let after = open_descriptors();
    assert!(
        after <= before + 40,
        "{before} descriptors before, {after} after"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_waiting_scripts_are_refused_with_a_hint() {
    let host = Host::with(SandboxSettings {
        concurrent_scripts: 1,
        waiting_scripts: 1,
        ..SandboxSettings::default()
    })
    .await;
    let limits = Limits {
        wall_time: seconds(3.0),
        ..Limits::default()
    };
    let calls: Vec<_> = (0..4)
        .map(|_| {
            let host = host.clone();
            let asked = limited(request("bash", "sleep 0.7"), limits);
            tokio::spawn(async move { host.client.clone().execute(asked).await })
        })
        .collect();
    let mut busy = 0;
    for call in calls {
        match call.await.unwrap() {
            Ok(response) => expect_class(response.get_ref(), &["exited 0"]),
            Err(status) => {
                assert_eq!(status.code(), tonic::Code::ResourceExhausted);
                assert!(grpc_kit::retry_after(&status).is_some());
                busy += 1;
            }
        }
    }
    assert_eq!(busy, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_the_launcher_is_the_end_of_the_script() {
    // Without a pid namespace and without a cgroup nobody is left who could find the orphans.
    let root = rustix::process::geteuid().is_root();
    for (_, host) in Host::all()
        .await
        .into_iter()
        .filter(|(name, _)| root || *name != "reduced")
    {
        let call = tokio::spawn({
            let host = host.clone();
            async move {
                host.run(request("bash", "sleep 8765.4 & sleep 8765.4"))
                    .await
            }
        });
        eventually("the script runs", || processes_with("8765.4").len() >= 2).await;
        let launchers: Vec<u32> = processes_with("sandbox-launcher")
            .into_iter()
            .filter(|pid| {
                let status =
                    std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
                status.contains(&format!("PPid:\t{}\n", std::process::id()))
            })
            .collect();
        for launcher in launchers {
            let pid = rustix::process::Pid::from_raw(launcher as i32).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        }
        let response = call.await.unwrap();
        let verdict = crate::support::class(&response);
        assert!(verdict.starts_with("launcher_failure"), "{verdict}");
        eventually("nobody is left", || processes_with("8765.4").is_empty()).await;
    }
}

/// The same programs once more, where the service is no root: the user namespace then maps its own
/// user, and nothing can be given away.
#[test]
fn everything_holds_for_an_ordinary_user_as_well() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    const NOBODY_ELSE: u32 = 63_999;
    let directory = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(directory.path(), Some(NOBODY_ELSE), Some(NOBODY_ELSE)).unwrap();
    // The test and the launcher may lie where only root can reach them.
    let own = std::env::current_exe().unwrap();
    let launcher = own
        .ancestors()
        .skip(1)
        .take(2)
        .map(|path| path.join("sandbox-launcher"));
    let launcher = launcher.into_iter().find(|path| path.is_file()).unwrap();
    for program in [own.as_path(), launcher.as_path()] {
        let copy = directory.path().join(program.file_name().unwrap());
        std::fs::copy(program, copy).unwrap();
    }
    let temporary = directory.path().join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    std::os::unix::fs::chown(&temporary, Some(NOBODY_ELSE), Some(NOBODY_ELSE)).unwrap();
    let rounds: [(&[&str], &str); 2] = [
        (
            &[
                "execute::",
                "isolation::",
                "abuse::kernel",
                "abuse::network",
                "abuse::files",
                "e04",
                "e05",
                "e08",
            ],
            "4",
        ),
        (&["e01", "e94"], "1"),
    ];
    for (tests, threads) in rounds {
        let output = Command::new(directory.path().join(own.file_name().unwrap()))
            .args(tests)
            .args(["--test-threads", threads])
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("TMPDIR", &temporary)
            .current_dir(directory.path())
            .uid(NOBODY_ELSE)
            .gid(NOBODY_ELSE)
            .output()
            .unwrap();
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(
            output.status.success(),
            "{}\n{}",
            said(&output.stdout),
            said(&output.stderr)
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_of_the_caller_ends_the_script() {
    let host = Host::full().await;
    let mut asked = tonic::Request::new(python("import time; time.sleep(60)"));
    asked.set_timeout(Duration::from_millis(800));
    let status = host.client.clone().execute(asked).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::DeadlineExceeded);
    eventually("nobody is left", || {
        own_children() == 0 && left_behind().is_empty()
    })
    .await;
}
