//! From the domain to the wire.

use std::time::Duration;

use contracts::tavern::sandbox::v1::{self as wire, verdict::Kind};
use sandbox_engine::{
    domain::{
        isolation::{IsolationLevel, MemoryEnforcement, MissingLayer},
        limits::Limits,
        outcome::{Outcome, ScriptResult},
        usage::Usage,
        verdict::{Stream, Verdict},
    },
    pool::PoolState,
    runtimes::Runtime,
};
use sandbox_launcher::report::{Failure, Layer};

use crate::{
    domain::session::EndReason,
    sandbox::Sandbox,
    streaming::{Started, output_queue::Chunk},
};

mod files;
mod hardware;

pub(super) fn response(outcome: &Outcome, replayed: bool) -> wire::ExecuteResponse {
    let (result_json, result_state) = match &outcome.result {
        ScriptResult::None => (String::new(), wire::ResultState::None),
        ScriptResult::Json(text) => (text.clone(), wire::ResultState::Json),
        ScriptResult::Malformed => (String::new(), wire::ResultState::Malformed),
        ScriptResult::TooLarge => (String::new(), wire::ResultState::TooLarge),
    };
    wire::ExecuteResponse {
        verdict: Some(wire::Verdict {
            kind: Some(verdict(&outcome.verdict)),
        }),
        stdout: outcome.stdout.bytes.clone(),
        stderr: outcome.stderr.bytes.clone(),
        stdout_truncated_bytes: outcome.stdout.truncated,
        stderr_truncated_bytes: outcome.stderr.truncated,
        result_json,
        result_state: result_state.into(),
        usage: Some(usage(&outcome.usage)),
        isolation: level(outcome.isolation).into(),
        missing_layers: outcome.missing.iter().map(missing).collect(),
        memory_enforcement: enforcement(outcome.enforcement).into(),
        replayed,
        limits: Some(limits(&outcome.limits)),
        collected: outcome.collected.as_ref().map(files::collected),
        stdout_bytes: outcome.stdout.passed(),
        stderr_bytes: outcome.stderr.passed(),
    }
}

pub(super) fn chunk(chunk: Chunk) -> wire::OutputChunk {
    wire::OutputChunk {
        stream: output_stream(chunk.stream).into(),
        data: chunk.bytes,
        offset: chunk.offset,
    }
}

pub(super) fn started(started: &Started) -> wire::ExecutionStarted {
    wire::ExecutionStarted {
        runtime: started.runtime.clone(),
        isolation: level(Some(started.isolation)).into(),
        missing_layers: started.missing.iter().map(missing).collect(),
        memory_enforcement: enforcement(started.enforcement).into(),
        limits: Some(limits(&started.limits)),
    }
}

pub(super) fn end_reason(reason: EndReason) -> wire::SessionEndReason {
    match reason {
        EndReason::Interpreter => wire::SessionEndReason::Interpreter,
        EndReason::Idle => wire::SessionEndReason::Idle,
        EndReason::Lifetime => wire::SessionEndReason::Lifetime,
        EndReason::Deleted => wire::SessionEndReason::Deleted,
        EndReason::NotInterrupted => wire::SessionEndReason::NotInterrupted,
        EndReason::ChannelBroken => wire::SessionEndReason::ChannelBroken,
        EndReason::NotReady => wire::SessionEndReason::NotReady,
        EndReason::Shutdown => wire::SessionEndReason::Shutdown,
        EndReason::Evicted => wire::SessionEndReason::Evicted,
    }
}

pub(super) fn isolation(sandbox: &Sandbox) -> wire::GetIsolationResponse {
    let report = sandbox.report();
    let lowest = sandbox.settings().lowest_isolation;
    let ready = report.is_ready(lowest);
    let reached = report
        .level
        .map_or("no isolation level", IsolationLevel::name);
    let statement = format!(
        "Scripts {} isolated as `{reached}`, memory and processes {}. They share the host's single \
         kernel: a flaw in it is a way out.",
        if ready {
            "run"
        } else {
            "are refused; the host would run them"
        },
        match report.enforcement {
            MemoryEnforcement::Sampled => {
                "bounded by rlimits and sampling, which do not see what the kernel keeps of \
                 mappings, pipes and epoll"
            }
            MemoryEnforcement::CgroupV1 | MemoryEnforcement::CgroupV2 => "bounded by a cgroup",
        },
    );
    let (default, maximum) = sandbox.limits();
    wire::GetIsolationResponse {
        level: level(report.level).into(),
        lowest_allowed: level(Some(lowest)).into(),
        ready,
        missing_layers: report.missing.iter().map(missing).collect(),
        memory_enforcement: enforcement(report.enforcement).into(),
        single_kernel: true,
        statement,
        landlock_abi: sandbox_launcher::confine::landlock_abi(),
        allowed_syscalls: report.level.map_or(0, allowed_syscalls),
        failures: report
            .failures
            .iter()
            .map(|each| wire::LevelFailure {
                level: level(Some(each.level)).into(),
                layer: layer(each.failure.layer).into(),
                message: each.failure.message.clone(),
                errno: each.failure.errno,
            })
            .collect(),
        unproven: Vec::new(),
        default_limits: Some(limits(&default)),
        maximum_limits: Some(limits(&maximum)),
        tells_network_attempts: sandbox_launcher::confine::tells_network(),
        maximum_streamed_output_bytes: sandbox.streamed_limits().1.output as u64,
        hardware: Some(hardware::hardware(&report.hardware)),
    }
}

fn allowed_syscalls(level: IsolationLevel) -> u32 {
    let profile = sandbox_launcher::confine::profile_of(
        level != IsolationLevel::Reduced,
        rustix::process::geteuid().is_root(),
    );
    u32::try_from(sandbox_launcher::seccomp::policy::allowed_calls(profile)).unwrap_or(u32::MAX)
}

pub(super) fn runtime(runtime: &Runtime, pool: PoolState) -> wire::Runtime {
    let (version, problem) = match &runtime.interpreter {
        Ok(interpreter) => (interpreter.version.clone(), String::new()),
        Err(problem) => (String::new(), problem.clone()),
    };
    wire::Runtime {
        name: runtime.profile.name.clone(),
        aliases: runtime.profile.aliases.clone(),
        language: runtime.profile.language.clone(),
        version,
        file_suffix: runtime.profile.file_suffix.clone(),
        sessions: problem.is_empty() && runtime.profile.session.is_some(),
        usable: problem.is_empty(),
        problem,
        warm_ready: pool.ready,
        warm_target: pool.target,
        warm_problem: pool.problem,
    }
}

pub(super) fn verdict(verdict: &Verdict) -> Kind {
    match verdict {
        Verdict::Exited { code } => Kind::Exited(wire::Exited { code: *code }),
        Verdict::Signalled { signal } => Kind::Signalled(wire::Signalled {
            signal: *signal,
            name: signal_name(*signal),
        }),
        Verdict::Wall { limit, observed } => Kind::Wall(wire::WallExceeded {
            limit: Some(duration(*limit)),
            observed: Some(duration(*observed)),
        }),
        Verdict::Cpu { limit, observed } => Kind::Cpu(wire::CpuExceeded {
            limit: Some(duration(*limit)),
            observed: Some(duration(*observed)),
        }),
        Verdict::Memory { limit, observed } => Kind::Memory(wire::MemoryExceeded {
            limit_bytes: *limit,
            observed_bytes: *observed,
        }),
        Verdict::Processes {
            limit,
            observed,
            refused,
        } => {
            let (limit, observed, refused) = (*limit, *observed, *refused);
            Kind::Processes(wire::ProcessesExceeded {
                limit,
                observed,
                refused,
            })
        }
        Verdict::Output {
            stream,
            limit,
            observed,
        } => Kind::Output(wire::OutputExceeded {
            stream: output_stream(*stream).into(),
            limit_bytes: *limit,
            observed_bytes: *observed,
        }),
        Verdict::Disk {
            limit,
            observed,
            limit_files,
            observed_files,
        } => Kind::Disk(wire::DiskExceeded {
            limit_bytes: *limit,
            observed_bytes: *observed,
            limit_files: *limit_files,
            observed_files: *observed_files,
        }),
        Verdict::ForbiddenSyscall { signal } => {
            Kind::ForbiddenSyscall(wire::ForbiddenSyscall { signal: *signal })
        }
        Verdict::Network { attempts } => Kind::NetworkDenied(wire::NetworkDenied {
            attempts: *attempts,
        }),
        Verdict::Cancelled { after } => Kind::Cancelled(wire::Cancelled {
            after: Some(duration(*after)),
        }),
        Verdict::LauncherFailure(Failure {
            layer: failed,
            message,
            errno,
        }) => Kind::LauncherFailure(wire::LauncherFailure {
            layer: layer(*failed).into(),
            message: message.clone(),
            errno: *errno,
        }),
    }
}

fn output_stream(stream: Stream) -> wire::OutputStream {
    match stream {
        Stream::Stdout => wire::OutputStream::Stdout,
        Stream::Stderr => wire::OutputStream::Stderr,
        Stream::Result => wire::OutputStream::Result,
    }
}

fn signal_name(signal: i32) -> String {
    let name = match signal {
        libc::SIGHUP => "SIGHUP",
        libc::SIGINT => "SIGINT",
        libc::SIGQUIT => "SIGQUIT",
        libc::SIGILL => "SIGILL",
        libc::SIGTRAP => "SIGTRAP",
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGKILL => "SIGKILL",
        libc::SIGUSR1 => "SIGUSR1",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGUSR2 => "SIGUSR2",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGALRM => "SIGALRM",
        libc::SIGTERM => "SIGTERM",
        libc::SIGXCPU => "SIGXCPU",
        libc::SIGXFSZ => "SIGXFSZ",
        libc::SIGSYS => "SIGSYS",
        other => return format!("SIG{other}"),
    };
    name.to_owned()
}

pub(super) fn usage(usage: &Usage) -> wire::Usage {
    wire::Usage {
        wall_time: Some(duration(usage.wall_time)),
        cpu_time: Some(duration(usage.cpu_time)),
        max_memory_bytes: usage.max_memory,
        max_processes: usage.max_processes,
        max_disk_bytes: usage.max_disk,
        setup_time: Some(duration(usage.setup_time)),
        warm_start: usage.warm_start,
    }
}

pub(super) fn limits(limits: &Limits) -> wire::Limits {
    wire::Limits {
        wall_time: Some(duration(limits.wall_time)),
        cpu_time: Some(duration(limits.cpu_time)),
        memory_bytes: Some(limits.memory as u64),
        processes: Some(limits.processes),
        file_bytes: Some(limits.file as u64),
        disk_bytes: Some(limits.disk as u64),
        disk_files: Some(limits.disk_files),
        open_files: Some(limits.open_files),
        output_bytes: Some(limits.output as u64),
        result_bytes: Some(limits.result as u64),
    }
}

pub(super) fn missing(missing: &MissingLayer) -> wire::MissingLayer {
    wire::MissingLayer {
        layer: layer(missing.layer).into(),
        consequence: missing.consequence.clone(),
    }
}

pub(super) fn level(level: Option<IsolationLevel>) -> wire::IsolationLevel {
    match level {
        None => wire::IsolationLevel::Unspecified,
        Some(IsolationLevel::Reduced) => wire::IsolationLevel::Reduced,
        Some(IsolationLevel::FullWithoutProc) => wire::IsolationLevel::FullWithoutProc,
        Some(IsolationLevel::Full) => wire::IsolationLevel::Full,
    }
}

pub(super) fn enforcement(enforcement: MemoryEnforcement) -> wire::MemoryEnforcement {
    match enforcement {
        MemoryEnforcement::Sampled => wire::MemoryEnforcement::Sampled,
        MemoryEnforcement::CgroupV2 => wire::MemoryEnforcement::CgroupV2,
        MemoryEnforcement::CgroupV1 => wire::MemoryEnforcement::CgroupV1,
    }
}

fn layer(layer: Layer) -> wire::IsolationLayer {
    use wire::IsolationLayer as Wire;
    match layer {
        Layer::Launch => Wire::Launch,
        Layer::UserNamespace => Wire::UserNamespace,
        Layer::MountNamespace => Wire::MountNamespace,
        Layer::PidNamespace => Wire::PidNamespace,
        Layer::NetworkNamespace => Wire::NetworkNamespace,
        Layer::IpcNamespace => Wire::IpcNamespace,
        Layer::UtsNamespace => Wire::UtsNamespace,
        Layer::CgroupNamespace => Wire::CgroupNamespace,
        Layer::Root => Wire::Root,
        Layer::Proc => Wire::Proc,
        Layer::CgroupLimits => Wire::CgroupLimits,
        Layer::Rlimits => Wire::Rlimits,
        Layer::Landlock => Wire::Landlock,
        Layer::LandlockScopes => Wire::LandlockScopes,
        Layer::Seccomp => Wire::Seccomp,
        Layer::Privileges => Wire::Privileges,
        Layer::Keyring => Wire::Keyring,
        Layer::Files => Wire::Files,
        Layer::Exec => Wire::Exec,
        Layer::DiskQuota => Wire::DiskQuota,
    }
}

pub(super) fn duration(duration: Duration) -> prost_types::Duration {
    prost_types::Duration {
        seconds: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(duration.subsec_nanos()).unwrap_or(0),
    }
}
