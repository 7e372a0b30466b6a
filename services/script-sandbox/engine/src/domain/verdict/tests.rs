use super::*;

fn facts() -> Facts {
    Facts {
        limits: Limits::DEFAULT,
        usage: Usage::default(),
        stopped: None,
        failure: None,
        end: None,
        evidence: Evidence {
            sampled_memory: Some(0),
            ..Evidence::default()
        },
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
        Verdict::Cancelled { .. } => "cancelled",
        Verdict::LauncherFailure(_) => "launcher_failure",
    }
}

/// Evidence of a kill by the kernel.
fn killed() -> Evidence {
    Evidence {
        memory_kills: 1,
        ..Evidence::default()
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
            evidence: killed(),
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
                evidence: killed(),
                end,
                ..facts()
            },
            "memory",
        );
        check(
            Facts {
                evidence: killed(),
                stopped: Some(Stopped::Wall),
                end,
                ..facts()
            },
            "memory",
        );
    }
    check(
        Facts {
            evidence: killed(),
            stopped: Some(Stopped::Cancelled),
            ..facts()
        },
        "cancelled",
    );
}

#[test]
fn only_what_was_sampled_is_evidence_of_too_much_memory() {
    let limit = Limits::DEFAULT.memory as u64;
    let (failure, crash) = (End::Exited(1), End::Signalled(libc::SIGSEGV));
    let table = [
        (Some(limit), crash, "memory"),
        (Some(limit), failure, "memory"),
        (Some(limit), End::Exited(0), "exited"),
        // Measured too late to end it.
        (Some(limit + 1), End::Exited(0), "memory"),
        // The largest process maps files.
        (Some(limit - 1), crash, "signalled"),
        (Some(limit - 1), failure, "exited"),
        // The kernel kills where it counts.
        (None, crash, "signalled"),
        (None, failure, "exited"),
    ];
    for (sampled_memory, end, expected) in table {
        let facts = Facts {
            usage: Usage {
                max_memory: limit,
                ..Usage::default()
            },
            end: Some(end),
            evidence: Evidence {
                sampled_memory,
                ..Evidence::default()
            },
            ..facts()
        };
        check(facts, expected);
    }
}

#[test]
fn a_file_that_is_too_long_for_the_scripts_own_limit_fills_no_disk() {
    let limit = Limits::DEFAULT.file as u64;
    let table = [
        (limit, 0, "disk"),
        (0, limit, "disk"),
        (0, limit - 4096, "disk"),
        (limit - 1, limit - 4097, "signalled"),
        (0, 0, "signalled"),
        (u64::MAX, u64::MAX, "disk"),
    ];
    for (longest_file, max_disk, expected) in table {
        let facts = Facts {
            usage: Usage {
                max_disk,
                ..Usage::default()
            },
            end: Some(End::Signalled(libc::SIGXFSZ)),
            evidence: Evidence {
                longest_file,
                ..Evidence::default()
            },
            ..facts()
        };
        check(facts, expected);
    }
}

#[test]
fn a_script_that_holds_more_than_the_limit_has_passed_it_however_it_ends() {
    let (bytes, files) = (
        Limits::DEFAULT.disk as u64,
        u64::from(Limits::DEFAULT.disk_files),
    );
    let table = [
        (bytes, files, "exited"),
        (bytes + 1, 0, "disk"),
        (0, files + 1, "disk"),
    ];
    for (max_disk, max_disk_files, expected) in table {
        let facts = Facts {
            usage: Usage {
                max_disk,
                max_disk_files,
                ..Usage::default()
            },
            end: Some(End::Exited(0)),
            ..facts()
        };
        check(facts, expected);
    }
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
fn nothing_that_used_more_processor_time_than_allowed_has_just_exited() {
    let limit = Limits::DEFAULT.cpu_time;
    for (cpu_time, expected) in [
        (limit, "exited"),
        (limit + Duration::from_micros(1), "cpu"),
        (Duration::MAX, "cpu"),
    ] {
        for code in [0, 1, 255] {
            let usage = Usage {
                cpu_time,
                ..Usage::default()
            };
            let ended = Facts {
                usage,
                end: Some(End::Exited(code)),
                ..facts()
            };
            check(ended, expected);
        }
    }
}

#[test]
fn refused_processes_explain_an_abort_and_nothing_else() {
    let limits = Limits {
        processes: 1,
        ..Limits::DEFAULT
    };
    for (signal, processes_refused, max_processes, expected) in [
        (libc::SIGABRT, 1, 0, "processes"),
        (libc::SIGABRT, 0, 1, "processes"),
        (libc::SIGABRT, 0, 0, "signalled"),
        (libc::SIGSEGV, 1, 1, "signalled"),
    ] {
        let ended = Facts {
            limits,
            usage: Usage {
                max_processes,
                ..Usage::default()
            },
            evidence: Evidence {
                processes_refused,
                ..Evidence::default()
            },
            end: Some(End::Signalled(signal)),
            ..facts()
        };
        check(ended, expected);
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
