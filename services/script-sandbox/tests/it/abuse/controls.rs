//! What hostile programs can do without a sandbox, so that a refusal inside of it means something.

use super::{exhaustion, files, kernel, memory, network};
use crate::{control::unconfined, oracle::Canaries};

/// The numbers whose tests run their program, or a call of it, without a sandbox by themselves.
pub(crate) const IN_THEIR_TESTS: [u32; 14] =
    [4, 19, 27, 36, 50, 51, 52, 54, 59, 63, 70, 73, 79, 81];

/// A program and what it says when it succeeds.
pub(crate) struct Control {
    pub(crate) number: u32,
    /// Runs the source, which follows.
    command: &'static [&'static str],
    source: &'static str,
    says: &'static str,
}

const PYTHON: &[&str] = &["python3", "-c"];
const BASH: &[&str] = &["bash", "-c"];

/// Python below a process of the same user.
const PYTHON_BELOW: &[&str] = &["bash", "-c", "python3 -c \"$0\"; true"];

const fn control(
    number: u32,
    command: &'static [&'static str],
    source: &'static str,
    says: &'static str,
) -> Control {
    Control {
        number,
        command,
        source,
        says,
    }
}

/// Every program that is the same inside and outside.
pub(crate) const CONTROLS: [Control; 11] = [
    control(12, PYTHON, exhaustion::SPARSE_GIANT, "made"),
    control(20, PYTHON, exhaustion::LARGER_SHARE, "False"),
    control(22, PYTHON, memory::LOCKED_MEMORY, " 0\n"),
    control(28, PYTHON, files::OTHERS_DIRECTORIES, "tavern-control"),
    control(32, PYTHON, files::SHARED_LINKS, "linked CANARIES/runs.db"),
    control(
        36,
        PYTHON,
        files::MODES_AND_TIMES,
        "CANARIES/runs.db length",
    ),
    control(40, PYTHON, files::BITS_AND_ATTRIBUTES, "attribute"),
    control(46, PYTHON, files::DEVICES, "ptmx"),
    control(55, PYTHON_BELOW, kernel::NAMESPACES_OF_OTHERS, "opened"),
    control(62, BASH, kernel::MORE_RIGHTS, "unshared"),
    control(73, PYTHON, network::SOCKETS, " 16,"),
];

#[test]
fn the_programs_succeed_without_a_sandbox() {
    let _others = tempfile::Builder::new()
        .prefix("tavern-control")
        .tempdir()
        .unwrap();
    for Control {
        number,
        command,
        source,
        says,
    } in CONTROLS
    {
        let canaries = Canaries::plant();
        let at = |text: &str| text.replace("CANARIES", canaries.path().to_str().unwrap());
        let source = at(source);
        let (program, arguments) = command.split_first().unwrap();
        let arguments: Vec<&str> = arguments.iter().copied().chain([source.as_str()]).collect();
        let said = unconfined(program, &arguments);
        assert!(said.contains(&at(says)), "E{number:02}: {said}");
    }
}
