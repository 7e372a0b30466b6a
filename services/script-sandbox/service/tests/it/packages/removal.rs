//! Sets that are removed, built again or damaged while scripts use them.

use std::{fs, path::Path};

use contracts::tavern::{common::v1::ErrorReason, sandbox::v1::DeleteSessionRequest};
use package_builder::BuildError;
use sandbox_engine::packages::PackageStore;
use script_sandbox::SandboxSettings;
use tonic::Code;

use super::{levels, listed, refused, session_with, sets, with};
use crate::{
    support::{Host, expect_output, python},
    warm::{self, run_warm},
};

/// A copy of the sets, which a test may change.
fn copy() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    copy_to(directory.path());
    directory
}

fn copy_to(directory: &Path) {
    let copied = std::process::Command::new("cp")
        .args(["--archive", "--no-target-directory"])
        .arg(sets())
        .arg(directory)
        .status();
    assert!(copied.unwrap().success());
}

async fn host_on(directory: &Path) -> Host {
    Host::with(SandboxSettings {
        packages_directory: directory.to_owned(),
        ..levels().remove(0)
    })
    .await
}

/// The refusal of a script whose set is gone.
async fn unknown(host: &Host) -> String {
    let asked = with("small", python("1"));
    refused(host, asked, Code::NotFound, ErrorReason::UnknownPackageSet).await
}

/// The refusal of a script whose set cannot be used.
async fn unfit(host: &Host) -> String {
    let (code, reason) = (Code::FailedPrecondition, ErrorReason::PackageSetUnfit);
    refused(host, with("small", python("1")), code, reason).await
}

#[tokio::test]
async fn a_set_is_not_removed_while_a_session_uses_it() {
    let directory = copy();
    let host = host_on(directory.path()).await;
    let store = PackageStore::new(directory.path());
    let session_id = session_with(&host, "small", "")
        .await
        .session
        .unwrap()
        .session_id;
    let kept = package_builder::remove(&store, "small").unwrap_err();
    let BuildError::InUse { users, .. } = &kept else {
        panic!("{kept}");
    };
    assert_eq!(users, std::slice::from_ref(&session_id));
    host.sessions
        .clone()
        .delete_session(DeleteSessionRequest {
            session_id,
            ..DeleteSessionRequest::default()
        })
        .await
        .unwrap();
    package_builder::remove(&store, "small").unwrap();
    assert!(listed(&host, "small").await.is_none());
    unknown(&host).await;
    let twice = package_builder::remove(&store, "small").unwrap_err();
    assert!(matches!(twice, BuildError::Set(_)), "{twice}");
}

#[tokio::test]
async fn a_set_for_another_version_or_processor_is_unfit_at_the_start_and_at_use() {
    for (field, other) in [("version", "2.7.18"), ("architecture", "vax")] {
        let directory = copy();
        let manifest = directory.path().join("small/set.json");
        let text = fs::read_to_string(&manifest).unwrap();
        let mut set: serde_json::Value = serde_json::from_str(&text).unwrap();
        set[field] = other.into();
        fs::write(&manifest, set.to_string()).unwrap();
        let host = host_on(directory.path()).await;
        let set = listed(&host, "small").await.unwrap();
        assert!(set.problem.contains(other), "{set:?}");
        let message = unfit(&host).await;
        assert!(message.contains("tavern packages build small"), "{message}");
    }
}

#[tokio::test]
async fn a_directory_without_a_whole_description_is_no_set() {
    let directory = copy();
    let host = host_on(directory.path()).await;
    expect_output(&host.run(with("small", python("print(1)"))).await, "1\n");
    let manifest = directory.path().join("small/set.json");
    fs::write(&manifest, "{\"name\": \"small\"").unwrap();
    assert!(listed(&host, "small").await.is_none());
    unfit(&host).await;
    fs::remove_file(&manifest).unwrap();
    unknown(&host).await;
}

#[tokio::test]
async fn interpreters_that_wait_with_a_set_that_was_removed_are_not_taken() {
    let directory = copy();
    let host = host_on(directory.path()).await;
    let lazy = with(
        "small",
        warm::python("import dateutil.easter; print('found')"),
    );
    expect_output(&run_warm(&host, lazy.clone()).await, "found\n");
    crate::support::eventually("another one waits", || {
        let runtimes = host.sandbox.runtimes().iter();
        let mut states = runtimes.map(|runtime| host.sandbox.pool_state(runtime, None, None));
        states.any(|state| state.ready > 0)
    })
    .await;
    package_builder::remove(&PackageStore::new(directory.path()), "small").unwrap();
    // The same set by digest, in another directory.
    copy_to(directory.path());
    for _ in 0..4 {
        expect_output(&host.run(lazy.clone()).await, "found\n");
    }
}
