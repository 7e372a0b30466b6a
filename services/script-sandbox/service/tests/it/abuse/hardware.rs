//! The report of the processor that scripts share.
//!
//! No program here tries a flaw; whether it works depends on the machine.

use std::fs;

use crate::{rounds::as_every_user, support::Host};

#[test]
fn e104_the_kernels_own_words_about_this_machine_are_reported() {
    as_every_user(async || {
        let hardware = Host::full().await.isolation().await.hardware.unwrap();
        let directory = "/sys/devices/system/cpu/vulnerabilities";
        let flaws = fs::read_dir(directory).into_iter().flatten().flatten();
        let mut expected: Vec<(String, String)> = flaws
            .map(|entry| {
                let state = fs::read_to_string(entry.path()).unwrap_or_default();
                let name = entry.file_name().into_string().unwrap();
                (name, state.trim().to_owned())
            })
            .collect();
        expected.sort();
        let reported = hardware.flaws.into_iter();
        let reported: Vec<_> = reported.map(|flaw| (flaw.name, flaw.state)).collect();
        assert_eq!(reported, expected);
    });
}
