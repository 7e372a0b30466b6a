//! The isolation that is reported and demanded.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::Path,
};

use contracts::tavern::sandbox::v1::{
    IsolationLevel as Wire, ListRuntimesRequest, MemoryEnforcement as Memory,
};
use sandbox_engine::domain::isolation::{IsolationLevel, MemoryEnforcement};
use script_sandbox::{Error, SandboxSettings};

use crate::{
    rounds::{as_every_user, everywhere, is_root},
    support::{Host, expect_class, python, reduced_settings, stdout},
};

#[test]
fn the_report_says_what_is_there_and_what_is_missing() {
    everywhere(async |host| {
        let report = host.isolation().await;
        assert!(report.ready, "{report:?}");
        assert!(
            report.statement.contains("single kernel"),
            "{}",
            report.statement
        );
        assert!(
            (50..200).contains(&report.allowed_syscalls),
            "{}",
            report.allowed_syscalls
        );
        let response = host.python("print(1)").await;
        assert_eq!(response.isolation, report.level);
        assert_eq!(response.memory_enforcement, report.memory_enforcement);
        assert_eq!(response.missing_layers, report.missing_layers);
        match host.kind {
            "reduced" => assert!(
                report.missing_layers.len() >= 8,
                "{:?}",
                report.missing_layers
            ),
            _ => assert_eq!(report.level(), Wire::Full),
        }
        if is_root() {
            let version_2 = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
            let expected = match host.kind {
                "sampled" => Memory::Sampled,
                _ if version_2 => Memory::CgroupV2,
                _ => Memory::CgroupV1,
            };
            assert_eq!(report.memory_enforcement(), expected);
        }
    });
}

#[test]
fn of_several_interpreters_the_fastest_is_used() {
    as_every_user(async || {
        let directory = tempfile::tempdir().unwrap();
        let set = |path: &Path| fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
        set(directory.path());
        let shim = |name: &str, before: &str| {
            let path = directory.path().join(name);
            let text = format!("#!/bin/bash\n{before}\nSHIM=\"$0\" exec /bin/bash \"$@\"\n");
            fs::write(&path, text).unwrap();
            set(&path);
            path.display().to_string()
        };
        let slow = shim("slow", "sleep 1");
        let (fast, broken) = (shim("fast", ""), shim("broken", "exit 3"));
        let orders = [[&slow, &broken, &fast], [&fast, &slow, &broken]];
        for (number, order) in orders.iter().enumerate() {
            let profiles = directory.path().join(format!("profiles-{number}"));
            fs::create_dir(&profiles).unwrap();
            let describe = r#"printf '{"executable":"%s","version":"1","mounts":[]}' "$SHIM""#;
            let profile = format!(
                "name = 'shimmed'\nlanguage = 'shell'\nfile_suffix = '.sh'\nfind = {order:?}\n\
                 describe = ['-c', {describe:?}]\n\
                 command = ['{{interpreter}}', '{{script}}']\nproof = 'true'\n"
            );
            fs::write(profiles.join("shimmed.toml"), profile).unwrap();
            let host = Host::with(SandboxSettings {
                profiles_directory: profiles,
                // At `full` no script sees the files below /tmp.
                ..reduced_settings()
            })
            .await;
            let mut runtimes = host.sandbox.runtimes().iter();
            let found = runtimes.find(|it| it.profile.name == "shimmed").unwrap();
            let chosen = found.interpreter.as_ref().unwrap();
            assert_eq!(chosen.executable, Path::new(&fast));
        }
    });
}

#[test]
fn a_lower_level_needs_its_setting() {
    as_every_user(async || {
        let host = Host::with(SandboxSettings {
            highest_isolation: IsolationLevel::Reduced,
            ..SandboxSettings::default()
        })
        .await;
        let report = host.isolation().await;
        assert!(!report.ready);
        let status = host
            .client
            .clone()
            .execute(python("print(1)"))
            .await
            .unwrap_err();
        assert_eq!(status.code(), tonic::Code::FailedPrecondition);
        let metadata = grpc_kit::metadata(&status);
        assert_eq!(
            (metadata["wanted"].as_str(), metadata["available"].as_str()),
            ("full", "reduced")
        );
    });
}

#[test]
fn a_request_can_demand_more_than_the_operator() {
    as_every_user(async || {
        let host = Host::reduced().await;
        let mut asked = python("print(1)");
        asked.minimum_isolation = Wire::FullWithoutProc.into();
        let status = host.client.clone().execute(asked).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::FailedPrecondition);

        let host = Host::sampled().await;
        let mut asked = python("print(1)");
        asked.minimum_memory_enforcement = Memory::CgroupV1.into();
        let status = host.client.clone().execute(asked).await.unwrap_err();
        assert_eq!(grpc_kit::metadata(&status)["available"], "sampled");
    });
}

#[test]
fn the_level_without_proc_runs_scripts_without_proc() {
    as_every_user(async || {
        let host = Host::with(SandboxSettings {
            lowest_isolation: IsolationLevel::FullWithoutProc,
            highest_isolation: IsolationLevel::FullWithoutProc,
            lowest_memory_enforcement: MemoryEnforcement::Sampled,
            ..SandboxSettings::default()
        })
        .await;
        let response = host
            .python("import os; print(os.path.exists('/proc'))")
            .await;
        expect_class(&response, &["exited 0"]);
        assert_eq!(
            (stdout(&response).as_str(), response.isolation()),
            ("False\n", Wire::FullWithoutProc)
        );
        for runtime in host
            .client
            .clone()
            .list_runtimes(ListRuntimesRequest {})
            .await
            .unwrap()
            .into_inner()
            .runtimes
        {
            assert!(runtime.usable, "{runtime:?}");
        }
    });
}

#[test]
fn runtimes_say_whether_and_why_not() {
    as_every_user(async || {
        let profiles = tempfile::tempdir().unwrap();
        let cobol = include_str!("../../../engine/profiles/bash.toml")
            .replace("name = \"bash\"", "name = \"cobol\"")
            .replace("aliases = [\"sh\"]", "aliases = []")
            .replace(
                "find = [\"bash\", \"/usr/bin/bash\"]",
                "find = [\"/opt/cobol\"]",
            );
        std::fs::write(profiles.path().join("cobol.toml"), cobol).unwrap();
        let host = Host::with(SandboxSettings {
            profiles_directory: profiles.path().to_owned(),
            ..SandboxSettings::default()
        })
        .await;
        let runtimes = host
            .client
            .clone()
            .list_runtimes(ListRuntimesRequest {})
            .await
            .unwrap()
            .into_inner()
            .runtimes;
        let names: Vec<(&str, bool)> = runtimes
            .iter()
            .map(|runtime| (runtime.name.as_str(), runtime.usable))
            .collect();
        assert_eq!(
            names,
            [
                ("bash", true),
                ("cobol", false),
                ("node", true),
                ("python3", true)
            ]
        );
        assert!(
            runtimes[1].problem.contains("/opt/cobol"),
            "{}",
            runtimes[1].problem
        );
        assert!(
            runtimes[3].version.starts_with("3."),
            "{}",
            runtimes[3].version
        );
    });
}

#[tokio::test]
async fn a_missing_launcher_is_named_with_its_remedy() {
    let settings = SandboxSettings {
        launcher_path: "/nowhere/launcher".into(),
        ..SandboxSettings::default()
    };
    let error = script_sandbox::build(settings).await.unwrap_err();
    assert!(matches!(
        error,
        Error::Engine(sandbox_engine::BuildError::NoLauncher { .. })
    ));
    assert!(
        error.to_string().contains("/nowhere/launcher")
            && error.to_string().contains("launcher_path")
    );
}

#[test]
fn a_launcher_that_is_none_gives_no_level() {
    as_every_user(async || {
        let settings = SandboxSettings {
            launcher_path: "/usr/bin/true".into(),
            ..SandboxSettings::default()
        };
        let host = Host::with(settings).await;
        let status = host
            .client
            .clone()
            .execute(python("print(1)"))
            .await
            .unwrap_err();
        assert_eq!(grpc_kit::metadata(&status)["available"], "none");
    });
}
