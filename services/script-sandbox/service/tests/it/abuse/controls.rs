//! Hostile programs without a sandbox: their success gives meaning to a refusal inside.

mod list;

pub(crate) use list::{CONTROLS, IN_THEIR_TESTS};

use crate::{
    control::{unconfined, unconfined_python},
    oracle::Canaries,
    support::marker,
};

/// A program and its output on success.
pub(crate) struct Control {
    pub(crate) number: u32,
    /// The command that runs the source, which follows.
    command: &'static [&'static str],
    source: &'static str,
    /// Replacements for a run outside: numbers above the limit inside instead of loops without end.
    instead: &'static [(&'static str, &'static str)],
    /// The last step of the program, which shows its progress.
    after: &'static str,
    says: &'static str,
    /// The least number of times that it prints its line.
    times: usize,
}

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
        instead: &[],
        after: "",
        says,
        times: 1,
    }
}

impl Control {
    const fn instead(self, instead: &'static [(&'static str, &'static str)]) -> Self {
        Self { instead, ..self }
    }

    const fn after(self, after: &'static str) -> Self {
        Self { after, ..self }
    }

    const fn times(self, times: usize) -> Self {
        Self { times, ..self }
    }

    /// The program for a run outside.
    fn outside(&self) -> String {
        let mut source = self.source.to_owned();
        for (inside, outside) in self.instead {
            assert!(source.contains(inside), "E{:02}: {inside}", self.number);
            source = source.replace(inside, outside);
        }
        source + self.after
    }

    /// Runs it; returns the fault, if it did not achieve its purpose.
    fn run(&self) -> Option<String> {
        let (canaries, marker) = (Canaries::plant(), marker());
        let at = |text: &str| {
            let text = text.replace("CANARIES", canaries.path().to_str().unwrap());
            text.replace("MARKER", &marker)
        };
        let source = at(&self.outside());
        let (program, arguments) = self.command.split_first().unwrap();
        let arguments: Vec<String> = arguments.iter().map(|it| at(it)).chain([source]).collect();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let said = unconfined(program, &arguments);
        let times = said.matches(&at(self.says)).count();
        (times < self.times).then(|| {
            let said: String = said.chars().take(500).collect();
            format!("E{:02}: {times} times in {said}", self.number)
        })
    }
}

#[test]
fn the_programs_succeed_without_a_sandbox() {
    let _others = tempfile::Builder::new()
        .prefix("tavern-control")
        .tempdir()
        .unwrap();
    let failed: Vec<String> = CONTROLS.iter().filter_map(Control::run).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// A machine's own files may be many and large, and its processes are no concern of a test.
#[test]
fn no_program_goes_through_what_the_machine_holds_without_a_sandbox() {
    for control in CONTROLS {
        let source = control.outside();
        for place in ["/etc", "/home", "/opt", "/root", "/srv", "/var", "/tmp"] {
            let named = [format!("'{place}'"), format!("'{place}/")];
            let found = named.iter().any(|place| source.contains(place));
            let lists_only = control.number == 28;
            assert!(!found || lists_only, "E{:02}: {place}", control.number);
        }
        assert!(!source.contains("/proc/[0-9]"), "E{:02}", control.number);
    }
}

#[test]
fn two_programs_meet_without_a_sandbox() {
    let said = unconfined("bash", &["-c", &super::network::two_who_meet(&marker())]);
    assert!(said.contains("met"), "E85: {said}");
}

#[test]
fn traces_are_found_without_a_sandbox() {
    let name = format!("trace-{}", marker());
    let own = |source: &str| source.replace("trace-47", &name);
    unconfined_python(&own(super::files::PLANTS_TRACES));
    let said = unconfined_python(&own(super::files::LOOKS_FOR_TRACES));
    for place in ["/tmp", "/var/tmp", "/dev/shm", "/run/lock"] {
        let _ = std::fs::remove_file(format!("{place}/{name}"));
    }
    assert!(said.contains("/tmp"), "E47: {said}");
}

/// The root of a namespace of its own has rights that an ordinary user lacks: a refusal inside is
/// therefore one by the sandbox.
#[test]
fn calls_for_root_succeed_in_a_namespace_of_ones_own() {
    let calls = format!(
        "{}
print(call(165, b'none', b'/tmp', b'tmpfs', 0, None))
print(call(430, b'tmpfs', 0))
print(call(161, b'/tmp'))
print(call(170, b'x', 1))
",
        super::kernel::CALL
    );
    let said = unconfined("unshare", &["-Urmu", "python3", "-c", &calls]);
    assert_eq!(said, "allowed\n".repeat(4), "E43, E74");
}

#[test]
fn a_terminal_can_be_taken_without_a_sandbox() {
    let calls = format!(
        "import os, pty
os.setsid()
terminal, own = pty.openpty()
os.dup2(own, 0)
{}
print(call(16, 0, 0x540e, 0))
",
        super::kernel::CALL
    );
    assert_eq!(unconfined_python(&calls), "allowed\n", "E58");
}
