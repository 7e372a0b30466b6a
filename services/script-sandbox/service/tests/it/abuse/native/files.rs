//! Native programs that use up files, output and time, or leave files behind.

use std::sync::LazyLock;

use contracts::tavern::sandbox::v1::{ExecuteRequest, Limits, RefusedReason};

use super::{built, with_program};
use crate::{
    collect::{collecting, refused, taken},
    rounds::everywhere,
    support::{Host, expect_class, expect_output, limited, patient, processes_named, seconds},
};

static PROGRAM: LazyLock<Vec<u8>> = LazyLock::new(|| built(include_str!("files.c")));

fn asks(what: &str) -> ExecuteRequest {
    with_program(&PROGRAM, what)
}

async fn ends(host: &Host, what: &str, limits: Limits, class: &str) {
    let response = host.run(limited(asks(what), limits)).await;
    expect_class(&response, &[class]);
}

#[test]
fn e02_e67_daemons_of_a_native_program_die_with_it() {
    everywhere(async |host| {
        let name = format!("daemon-{}", std::process::id());
        let response = host.run(asks(&format!("daemons {name}"))).await;
        expect_output(&response, "started\n");
        assert_eq!(processes_named(&name), 0);
    });
}

#[test]
fn e11_e12_e13_e17_files_of_a_native_program_meet_their_limits() {
    everywhere(async |host| {
        let bytes = Limits {
            disk_bytes: Some(16 << 20),
            ..patient()
        };
        ends(&host, "fill", bytes, "disk").await;
        let files = Limits {
            disk_files: Some(2000),
            ..patient()
        };
        ends(&host, "many", files, "disk").await;
        // No file became too long, so the signal is reported as such.
        ends(&host, "giant", patient(), "signalled SIGXFSZ").await;
        expect_output(&host.run(asks("open")).await, "EMFILE 1\n");
    });
}

#[test]
fn e09_e15_e16_output_and_time_of_a_native_program_are_bounded() {
    everywhere(async |host| {
        let wall = Limits {
            wall_time: seconds(1.0),
            ..patient()
        };
        ends(&host, "sleep", wall, "wall").await;
        ends(&host, "trickle", wall, "wall").await;
        let output = Limits {
            output_bytes: Some(64 << 10),
            ..patient()
        };
        let response = host.run(limited(asks("flood"), output)).await;
        expect_class(&response, &["output"]);
        assert_eq!(response.stdout.len(), 64 << 10);
        assert!(response.stdout_truncated_bytes > 0);
    });
}

#[test]
fn e29_e33_e39_what_a_native_program_leaves_is_refused_by_kind() {
    everywhere(async |host| {
        let response = host.run(collecting(asks("oddities"))).await;
        // Where the quota is measured, a tree too deep to measure counts as too much.
        expect_class(&response, &["exited 0", "disk"]);
        assert_eq!(taken(&response), []);
        let kinds = refused(&response);
        for expected in [
            ("link", RefusedReason::SymbolicLink),
            ("loop", RefusedReason::SymbolicLink),
            ("pipe", RefusedReason::Fifo),
            ("one", RefusedReason::HardLink),
            ("two", RefusedReason::HardLink),
            ("locked", RefusedReason::Unreadable),
        ] {
            assert!(kinds.contains(&expected), "{} {kinds:?}", host.kind);
        }
    });
}

#[test]
fn e65_e69_the_way_in_which_a_native_program_ends_is_distinguished() {
    everywhere(async |host| {
        for (what, class) in [
            ("abort", "signalled SIGABRT"),
            ("kill", "signalled SIGKILL"),
            ("address", "signalled SIGSEGV"),
            ("code", "exited 137"),
        ] {
            ends(&host, what, patient(), class).await;
        }
    });
}
