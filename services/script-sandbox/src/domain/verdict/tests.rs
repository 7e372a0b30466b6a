use super::*;

fn facts() -> Facts {
    Facts {
        limits: Limits::DEFAULT,
        usage: Usage::default(),
        stopped: None,
        failure: None,
        end: None,
        memory_kills: 0,
        processes_refused: 0,
        sampled: true,
    }
}

/// The kind of a verdict, for tables.
fn kind(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Exited { .. } => "exited",
        Verdict::Signalled { .. } => "signalled",
        Verdict::Wall { .. } => "wall",
        Verdict::Cpu { .. } => "cpu",
        Verdict::Memory { .. } => "memory",
        Verdict::Processes { .. } => "processes",
        Verdict::Output { .. } => "output",
        Verdict::Disk { .. } => "disk",
        Verdict::ForbiddenSyscall { .. } => "forbidden_syscall",
        Verdict::Network { .. } => "network_denied",
        Verdict::Policy { .. } => "policy",
        Verdict::Cancelled { .. } => "cancelled",
        Verdict::LauncherFailure(_) => "launcher_failure",
    }
}

fn check(facts: Facts, expected: &str) {
    assert_eq!(kind(&facts.verdict()), expected, "{facts:?}");
}

#[test]
fn the_way_a_process_ends_decides_when_nothing_else_does() {
    let ended = |end| Facts {
        end: Some(end),
        ..facts()
    };
    for code in [0, 1, 2, 126, 127, 128, 137, 139, 255] {
        assert_eq!(ended(End::Exited(code)).verdict(), Verdict::Exited { code });
    }
    for signal in [
        libc::SIGSEGV,
        libc::SIGABRT,
        libc::SIGKILL,
        libc::SIGTERM,
        libc::SIGXCPU,
    ] {
        assert_eq!(
            ended(End::Signalled(signal)).verdict(),
            Verdict::Signalled { signal }
        );
    }
    check(ended(End::Signalled(libc::SIGSYS)), "forbidden_syscall");
    check(ended(End::Signalled(libc::SIGXFSZ)), "disk");
}

#[test]
fn what_the_service_did_decides_before_the_way_it_ended() {
    let output = Stopped::Output {
        stream: Stream::Stdout,
        observed: 7,
    };
    let table = [
        (Stopped::Wall, "wall"),
        (Stopped::Cpu, "cpu"),
        (Stopped::Memory, "memory"),
        (Stopped::Processes, "processes"),
        (output, "output"),
        (Stopped::Disk, "disk"),
        (Stopped::Network { attempts: 1 }, "network_denied"),
        (Stopped::Cancelled, "cancelled"),
    ];
    for (stopped, expected) in table {
        for end in [
            None,
            Some(End::Signalled(libc::SIGKILL)),
            Some(End::Exited(0)),
        ] {
            check(
                Facts {
                    stopped: Some(stopped),
                    end,
                    ..facts()
                },
                expected,
            );
        }
    }
}

#[test]
fn a_failed_set_up_is_never_blamed_on_the_script() {
    let failure = Failure {
        layer: Layer::Seccomp,
        message: "refused".to_owned(),
        errno: 22,
    };
    check(
        Facts {
            failure: Some(failure),
            end: Some(End::Exited(1)),
            stopped: Some(Stopped::Wall),
            memory_kills: 1,
            ..facts()
        },
        "launcher_failure",
    );
    check(facts(), "launcher_failure");
}

#[test]
fn the_kernels_memory_kills_decide_whatever_the_process_says() {
    for end in [
        None,
        Some(End::Exited(0)),
        Some(End::Signalled(libc::SIGKILL)),
    ] {
        check(
            Facts {
                memory_kills: 1,
                end,
                ..facts()
            },
            "memory",
        );
        check(
            Facts {
                memory_kills: 1,
                stopped: Some(Stopped::Wall),
                end,
                ..facts()
            },
            "memory",
        );
    }
    check(
        Facts {
            memory_kills: 1,
            stopped: Some(Stopped::Cancelled),
            ..facts()
        },
        "cancelled",
    );
}

#[test]
fn a_large_process_is_evidence_only_where_memory_is_sampled() {
    let usage = Usage {
        max_memory: Limits::DEFAULT.memory as u64,
        ..Usage::default()
    };
    let end = Some(End::Signalled(libc::SIGSEGV));
    check(
        Facts {
            usage,
            end,
            sampled: true,
            ..facts()
        },
        "memory",
    );
    check(
        Facts {
            usage,
            end,
            sampled: false,
            ..facts()
        },
        "signalled",
    );
    check(
        Facts {
            usage,
            end: Some(End::Exited(0)),
            ..facts()
        },
        "exited",
    );
}

#[test]
fn processor_time_explains_the_signals_that_the_kernel_sends_for_it() {
    let usage = Usage {
        cpu_time: Limits::DEFAULT.cpu_time,
        ..Usage::default()
    };
    for (signal, expected) in [
        (libc::SIGXCPU, "cpu"),
        (libc::SIGKILL, "cpu"),
        (libc::SIGSEGV, "signalled"),
    ] {
        check(
            Facts {
                usage,
                end: Some(End::Signalled(signal)),
                ..facts()
            },
            expected,
        );
    }
}

#[test]
fn full_scratch_space_explains_a_failure_and_no_success() {
    let bytes = Usage {
        max_disk: Limits::DEFAULT.disk as u64,
        ..Usage::default()
    };
    let files = Usage {
        max_disk_files: Limits::DEFAULT.disk_files.into(),
        ..Usage::default()
    };
    for usage in [bytes, files] {
        check(
            Facts {
                usage,
                end: Some(End::Exited(1)),
                ..facts()
            },
            "disk",
        );
        check(
            Facts {
                usage,
                end: Some(End::Signalled(libc::SIGBUS)),
                ..facts()
            },
            "disk",
        );
        check(
            Facts {
                usage,
                end: Some(End::Exited(0)),
                ..facts()
            },
            "exited",
        );
    }
}
