//! Cgroups that cannot be made.

use std::{
    fs,
    path::{Path, PathBuf},
};

use contracts::tavern::sandbox::v1::MemoryEnforcement;
use script_sandbox::SandboxSettings;

use crate::{
    rounds::as_every_user,
    support::{Host, class, expect_class, limited, memory_of, python},
};

/// Directories of cgroups of this process's scripts, the memory controller's where there are several
/// hierarchies.
fn own_cgroups() -> Vec<PathBuf> {
    let prefix = format!("tavern-script-{}-", std::process::id());
    let (mut found, mut open) = (Vec::new(), vec![PathBuf::from("/sys/fs/cgroup")]);
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&prefix) {
                found.push(entry.path());
            } else if entry.file_type().is_ok_and(|is| is.is_dir()) {
                open.push(entry.path());
            }
        }
    }
    let has_limit = |path: &PathBuf| {
        let limits = ["memory.limit_in_bytes", "memory.max"];
        limits.iter().any(|limit| path.join(limit).exists())
    };
    found.retain(has_limit);
    found
}

/// Takes the next names of cgroups, so many of them.
fn take_names(number: u64) -> Vec<PathBuf> {
    let parts = |path: &Path| {
        let (first, last) = path.to_str()?.rsplit_once('-')?;
        Some((last.parse::<u64>().ok()?, first.to_owned()))
    };
    let own = own_cgroups();
    let last = own.iter().filter_map(|path| parts(path)).max();
    let (last, first) = last.expect("launchers wait in cgroups");
    let names = (last + 1..=last + number).map(|number| PathBuf::from(format!("{first}-{number}")));
    names.filter(|name| fs::create_dir(name).is_ok()).collect()
}

#[test]
fn a_script_never_runs_with_less_than_the_service_reports() {
    as_every_user(async || {
        // Waiting interpreters have their cgroups already.
        let host = Host::with(SandboxSettings {
            warm_interpreters: 0,
            ..SandboxSettings::default()
        })
        .await;
        let reported = host.isolation().await.memory_enforcement();
        if reported == MemoryEnforcement::Sampled {
            return;
        }
        expect_class(&host.python("print(1)").await, &["exited 0"]);
        // A few taken names are skipped.
        let taken = take_names(20);
        for mebibytes in 100..104 {
            let response = host
                .run(limited(python("print(1)"), memory_of(mebibytes)))
                .await;
            expect_class(&response, &["exited 0"]);
            assert_eq!(response.memory_enforcement(), reported);
        }
        // If all are taken, no script runs.
        let more = take_names(1000);
        let mut refused = 0;
        for mebibytes in 104..116 {
            let response = host
                .run(limited(python("print(1)"), memory_of(mebibytes)))
                .await;
            if class(&response).starts_with("launcher_failure") {
                refused += 1;
            } else {
                expect_class(&response, &["exited 0"]);
                assert_eq!(response.memory_enforcement(), reported);
            }
        }
        for name in taken.into_iter().chain(more) {
            fs::remove_dir(name).expect("it was left alone");
        }
        assert!(refused > 0, "every script has found a cgroup");
    });
}
