//! Programs without an interpreter, brought along as files.

use std::{os::unix::fs::PermissionsExt, process::Command, sync::LazyLock};

use contracts::tavern::sandbox::v1::{ExecuteRequest, ExecuteResponse, InputFile, Limits};

use crate::{
    control::unconfined,
    rounds::everywhere,
    support::{Host, expect_class, limited, memory_of, patient, request, seconds, stdout},
};

mod files;

static PROGRAM: LazyLock<Vec<u8>> = LazyLock::new(|| built(include_str!("native/hostile.c")));

/// A program without libraries, so that it runs from any directory.
fn built(text: &str) -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("hostile.c");
    std::fs::write(&source, text).unwrap();
    let program = directory.path().join("hostile");
    let output = Command::new("cc")
        .args(["-static", "-O1", "-o"])
        .args([&program, &source])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    std::fs::read(program).unwrap()
}

/// A script that becomes the program with these arguments.
fn with_program(program: &[u8], arguments: &str) -> ExecuteRequest {
    let mut asked = request("bash", &format!("exec ./hostile {arguments}"));
    asked.files.push(InputFile {
        path: "hostile".to_owned(),
        content: program.to_vec(),
        executable: true,
        ..InputFile::default()
    });
    asked
}

fn asks(what: &str) -> ExecuteRequest {
    with_program(&PROGRAM, what)
}

async fn run(host: &Host, what: &str, limits: Limits) -> ExecuteResponse {
    host.run(limited(asks(what), limits)).await
}

/// The output of the program without a sandbox.
fn alone(what: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("hostile");
    std::fs::write(&program, &*PROGRAM).unwrap();
    for path in [directory.path(), &program] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
    }
    unconfined(program.to_str().unwrap(), &[what])
}

#[test]
fn e04_e05_memory_counts_however_it_is_had() {
    everywhere(async |host| {
        for what in ["private", "shared", "populated", "children", "tables"] {
            let limits = memory_of(128);
            expect_class(&run(&host, what, limits).await, &["memory"]);
        }
    });
}

#[test]
fn e103_memory_that_a_child_has_from_its_parent_until_it_runs_a_program_counts_once() {
    everywhere(async |host| {
        let response = run(&host, "vfork", memory_of(160)).await;
        expect_class(&response, &["exited 0"]);
        let most = response.usage.unwrap().max_memory_bytes;
        assert!((96 << 20..150 << 20).contains(&most), "{most}");
    });
}

#[test]
fn e04_memory_that_no_process_maps_cannot_be_had() {
    let control = alone("unmapped");
    assert!(control.contains("memfd_create allowed"), "{control}");
    everywhere(async |host| {
        let response = run(&host, "unmapped", patient()).await;
        expect_class(&response, &["exited 0"]);
        assert!(
            !stdout(&response).contains("allowed"),
            "{}",
            stdout(&response)
        );
    });
}

#[test]
fn e01_e03_tasks_count_however_they_are_made() {
    everywhere(async |host| {
        for what in ["fork", "clone"] {
            let limits = Limits {
                processes: Some(32),
                wall_time: seconds(3.0),
                ..patient()
            };
            let response = run(&host, what, limits).await;
            expect_class(&response, &["processes", "wall"]);
            let usage = response.usage.unwrap();
            // Where the kernel does not count, the crowd is seen before it is ended.
            assert!(
                usage.max_processes <= 32 || host.shares_its_user(),
                "{usage:?}"
            );
        }
    });
}

#[test]
fn e08_a_native_program_ends_at_its_processor_time() {
    everywhere(async |host| {
        let limits = Limits {
            cpu_time: seconds(1.0),
            ..patient()
        };
        expect_class(&run(&host, "spin", limits).await, &["cpu"]);
    });
}

#[test]
fn e41_e43_e50_e51_e52_e54_e55_e58_e59_e70_e73_e75_no_call_of_a_native_program_gets_through() {
    let control = alone("kernel");
    for call in [
        "keyctl",
        "ptrace",
        "unshare",
        "process_vm_readv",
        "inotify",
        "flock",
        "owner",
        "shmget",
    ] {
        assert!(control.contains(&format!("{call} allowed")), "{control}");
    }
    everywhere(async |host| {
        let response = run(&host, "kernel", patient()).await;
        expect_class(&response, &["exited 0"]);
        let reported = stdout(&response);
        assert_eq!(reported.lines().count(), control.lines().count());
        assert!(!reported.contains("allowed"), "{reported}");
    });
}

#[test]
fn e61_a_program_cannot_come_out_of_a_descriptor() {
    // The program becomes another one, and prints nothing more.
    assert_eq!(alone("execveat"), "");
    everywhere(async |host| {
        let response = run(&host, "execveat", patient()).await;
        expect_class(&response, &["exited 0"]);
        assert_eq!(stdout(&response), "execveat ENOSYS\n");
    });
}

#[test]
fn e69_a_native_program_that_crashes_is_distinguished() {
    everywhere(async |host| {
        let response = run(&host, "trap", patient()).await;
        expect_class(&response, &["signalled SIGILL"]);
    });
}
