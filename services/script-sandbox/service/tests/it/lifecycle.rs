//! Starts and ends: cancellation, crowds, leftovers.

use std::{collections::HashSet, time::Duration};

use contracts::tavern::common::v1::ErrorReason;
use script_sandbox::SandboxSettings;
use tokio::task::JoinSet;
use tonic::Code;

use crate::{
    oracle::{entries, left_behind, own_launchers},
    rounds::{as_every_user, everywhere, is_root},
    support::{
        Host, class, eventually, expect_class, expect_output, marker, processes_with, python,
        request,
    },
};

/// The parents of these processes, their parents, and so on.
fn ancestors(processes: &[u32]) -> HashSet<u32> {
    let parent = |pid: u32| -> Option<u32> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
        line.trim().parse().ok()
    };
    let mut found = HashSet::new();
    for process in processes {
        let mut next = parent(*process);
        while let Some(pid) = next.filter(|pid| found.insert(*pid)) {
            next = parent(pid);
        }
    }
    found
}

/// Ends the caller that waits for a script; then no process may be left.
pub(crate) async fn nothing_is_left(host: &Host) {
    host.sandbox.shutdown().await;
    eventually("nothing is left behind", || {
        left_behind().is_empty() && own_launchers().is_empty()
    })
    .await;
}

#[test]
fn e94_losing_the_caller_ends_every_process() {
    everywhere(async |host| {
        let marker = marker();
        let source = format!("setsid sleep {marker} & sleep {marker} & wait");
        let call = tokio::spawn({
            let host = host.clone();
            async move { host.run(request("bash", &source)).await }
        });
        eventually("two sleepers run", || processes_with(&marker).len() >= 2).await;
        call.abort();
        eventually("no process is left", || processes_with(&marker).is_empty()).await;
        nothing_is_left(&host).await;
    });
}

#[test]
fn e95_five_hundred_scripts_leave_nothing() {
    as_every_user(async || {
        let host = Host::full().await;
        expect_output(&host.python("print(1)").await, "1\n");
        let before = entries("/proc/self/fd");
        for _ in 0..10 {
            let calls: Vec<_> = (0..50)
                .map(|number| {
                    let host = host.clone();
                    tokio::spawn(async move {
                        host.run(request("bash", &format!("echo {number}"))).await
                    })
                })
                .collect();
            for (number, call) in calls.into_iter().enumerate() {
                expect_output(&call.await.unwrap(), &format!("{number}\n"));
            }
        }
        nothing_is_left(&host).await;
        // Users and threads of the runtime may have been added, one descriptor each.
        let after = entries("/proc/self/fd");
        assert!(
            after <= before + 40,
            "{before} descriptors before, {after} after"
        );
    });
}

#[test]
fn too_many_waiting_scripts_are_refused_with_a_hint() {
    as_every_user(async || {
        let host = Host::with(SandboxSettings {
            concurrent_scripts: 1,
            waiting_scripts: 1,
            ..SandboxSettings::default()
        })
        .await;
        let running = host.sleeper("").await;
        let mut calls = JoinSet::new();
        for _ in 0..3 {
            let mut client = host.client.clone();
            calls.spawn(async move { client.execute(request("bash", "true")).await });
        }
        // While the first one runs, one can wait and two cannot.
        for _ in 0..2 {
            let status = calls.join_next().await.unwrap().unwrap().unwrap_err();
            assert_eq!(status.code(), tonic::Code::ResourceExhausted);
            assert!(grpc_kit::retry_after(&status).is_some());
        }
        running.end().await;
        let waited = calls.join_next().await.unwrap().unwrap().unwrap();
        expect_class(waited.get_ref(), &["exited 0"]);
    });
}

#[test]
fn the_end_of_the_launcher_is_the_end_of_the_script() {
    everywhere(async |host| {
        // Without a pid namespace and without a cgroup no process is left that could find the orphans.
        if host.kind == "reduced" && !is_root() {
            return;
        }
        let marker = marker();
        let call = tokio::spawn({
            let (host, source) = (host.clone(), format!("sleep {marker} & sleep {marker}"));
            async move { host.run(request("bash", &source)).await }
        });
        eventually("the script runs", || processes_with(&marker).len() >= 2).await;
        // Other scripts run meanwhile; only the launcher above this one is killed.
        let above = ancestors(&processes_with(&marker));
        let launchers = own_launchers();
        for launcher in launchers.into_iter().filter(|pid| above.contains(pid)) {
            let pid = rustix::process::Pid::from_raw(launcher as i32).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        }
        let verdict = class(&call.await.unwrap());
        assert!(verdict.starts_with("launcher_failure"), "{verdict}");
        eventually("no process is left", || processes_with(&marker).is_empty()).await;
    });
}

#[test]
fn a_deadline_of_the_caller_ends_the_script() {
    as_every_user(async || {
        let host = Host::full().await;
        let mut asked = tonic::Request::new(python("import time; time.sleep(600)"));
        asked.set_timeout(Duration::from_millis(800));
        let status = host.client.clone().execute(asked).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::DeadlineExceeded);
        nothing_is_left(&host).await;
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_shuts_down_begins_nothing() {
    let host = Host::full().await;
    host.sandbox.end_scripts().await;
    let refusals = host.refuses_all(Code::Unavailable, ErrorReason::Draining);
    for status in refusals.await {
        assert!(!grpc_kit::may_have_arrived(&status));
    }
}
