//! The processor that scripts share: what is reported of it, and who is not let near it.
//!
//! No program here tries a flaw; whether it works depends on the machine. The files in which the kernel
//! tells of them are made.

use std::{fs, path::Path};

use contracts::tavern::{
    common::v1::ErrorReason,
    sandbox::v1::{GetIsolationResponse, Hardware, Multithreading, Tenancy as Wire},
};
use script_sandbox::{SandboxSettings, domain::hardware::Tenancy};
use tonic::Code;

use crate::{
    rounds::as_every_user,
    support::{Host, expect_output, python},
};

/// A directory as the kernel has it, with these flaws.
fn processor(flaws: &[(&str, &str)], smt: &str) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    };
    for (name, state) in flaws {
        write(&format!("vulnerabilities/{name}"), state);
    }
    write("smt/active", smt);
    root
}

async fn host(processor: &Path, tenancy: Tenancy, accepted: bool) -> Host {
    Host::with(SandboxSettings {
        processor_directory: processor.to_owned(),
        tenancy,
        accept_vulnerable_processor: accepted,
        ..SandboxSettings::default()
    })
    .await
}

async fn report(host: &Host) -> (GetIsolationResponse, Hardware) {
    let report = host.isolation().await;
    let hardware = report.hardware.clone().unwrap();
    (report, hardware)
}

const LEAKY: [(&str, &str); 3] = [
    ("mds", "Mitigation: Clear CPU buffers; SMT vulnerable"),
    ("meltdown", "Not affected"),
    ("retbleed", "Vulnerable"),
];

#[test]
fn e104_a_leaky_processor_is_reported_and_runs_nothing_for_several_tenants() {
    as_every_user(async || {
        let leaky = processor(&LEAKY, "1");
        let host = host(leaky.path(), Tenancy::Multiple, false).await;
        let (report, hardware) = report(&host).await;
        assert!(!report.ready && hardware.refuses_scripts, "{report:?}");
        assert!(report.statement.contains("not safe for several tenants"));
        assert_eq!(hardware.multithreading(), Multithreading::On);
        assert_eq!(hardware.tenancy(), Wire::Multiple);
        let flaws: Vec<(&str, &str, bool)> = hardware
            .flaws
            .iter()
            .map(|flaw| (flaw.name.as_str(), flaw.state.as_str(), flaw.vulnerable))
            .collect();
        let vulnerable = [false, false, true];
        let expected = LEAKY.iter().zip(vulnerable);
        let expected: Vec<_> = expected
            .map(|((name, state), it)| (*name, *state, it))
            .collect();
        assert_eq!(flaws, expected);
        let dangers: Vec<&str> = hardware.dangers.iter().map(String::as_str).collect();
        assert!(
            matches!(dangers[..], [mds, retbleed] if mds.starts_with("mds") && retbleed.starts_with("retbleed"))
        );

        let reason = ErrorReason::IsolationUnavailable;
        for status in host.refuses_all(Code::FailedPrecondition, reason).await {
            assert!(grpc_kit::metadata(&status)["missing"].contains("retbleed"));
        }
    });
}

#[test]
fn e104_scripts_run_for_one_tenant_or_where_the_operator_accepts_it() {
    as_every_user(async || {
        let leaky = processor(&LEAKY, "1");
        for (tenancy, accepted) in [(Tenancy::Single, false), (Tenancy::Multiple, true)] {
            let host = host(leaky.path(), tenancy, accepted).await;
            let (report, hardware) = report(&host).await;
            assert!(report.ready && !hardware.refuses_scripts, "{report:?}");
            assert_eq!(hardware.dangers.len(), 2);
            assert_eq!(hardware.dangers_accepted, accepted);
            expect_output(&host.python("print(1)").await, "1\n");
        }
    });
}

#[test]
fn e104_several_tenants_are_served_where_the_kernel_has_nothing_against_it() {
    as_every_user(async || {
        // Nothing but cores that are shared makes the first of the flaws one.
        let sound = processor(&LEAKY[..2], "0");
        let host = host(sound.path(), Tenancy::Multiple, false).await;
        let (report, hardware) = report(&host).await;
        assert!(report.ready && hardware.dangers.is_empty(), "{report:?}");
        assert_eq!(hardware.multithreading(), Multithreading::Off);
        expect_output(&host.python("print(1)").await, "1\n");
    });
}

#[test]
fn e104_a_kernel_that_tells_nothing_is_no_reason_to_trust_the_processor() {
    as_every_user(async || {
        let nothing = tempfile::tempdir().unwrap();
        let host = host(nothing.path(), Tenancy::Multiple, false).await;
        let (report, hardware) = report(&host).await;
        assert!(!report.ready && hardware.flaws.is_empty(), "{report:?}");
        assert_eq!(hardware.multithreading(), Multithreading::Unspecified);
        let status = host
            .client
            .clone()
            .execute(python("print(1)"))
            .await
            .unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition);
    });
}

#[test]
fn e104_the_kernels_own_report_of_this_machine_is_read() {
    as_every_user(async || {
        let (_, hardware) = report(&Host::full().await).await;
        let told = fs::read_dir("/sys/devices/system/cpu/vulnerabilities");
        assert_eq!(hardware.flaws.len(), told.map_or(0, Iterator::count));
        assert_eq!(hardware.tenancy(), Wire::Single);
        assert!(!hardware.refuses_scripts);
    });
}
