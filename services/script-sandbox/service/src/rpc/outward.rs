//! From the domain to the wire.

use std::time::Duration;

use contracts::tavern::sandbox::v1::{self as wire, verdict::Kind};
use core_types::Tenant;
use sandbox_engine::{
    domain::{
        hardware::Hardware,
        isolation::{IsolationLevel, MemoryEnforcement, MissingLayer},
        limits::Limits,
        outcome::{Captured, Outcome, ScriptResult},
        package_set::PackageSet,
        stream::Stream,
        usage::Usage,
        verdict::Verdict,
    },
    packages::Packages,
    pool::PoolState,
    runtimes::Runtime,
};
use sandbox_launcher::confine;
use sandbox_protocol::report::{Failure, Layer};

use crate::{
    domain::session::EndReason,
    runner::{
        sandbox::{Sandbox, packages::problem_of},
        streaming::{Started, output_queue::Chunk},
    },
};

pub(super) mod files;

/// The value of the contract's enum that has the name of a value of ours.
macro_rules! same_name {
    ($value:expr, $ours:ty => $wire:ty: $($name:ident)*) => {
        match $value { $(<$ours>::$name => <$wire>::$name,)* }
    };
}

pub(super) use same_name;

pub(super) fn response(outcome: &Outcome) -> wire::ExecuteResponse {
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
        limits: Some(limits(&outcome.limits)),
        collected: outcome.collected.as_ref().map(files::collected),
        workspace: outcome.workspace.as_ref().map(files::changes),
        stdout_bytes: outcome.stdout.passed(),
        stderr_bytes: outcome.stderr.passed(),
        stdout_end: end_of(&outcome.stdout),
        stderr_end: end_of(&outcome.stderr),
    }
}

/// Returns the end of the part of a stream that was not kept.
pub(super) fn end_of(captured: &Captured) -> Vec<u8> {
    captured.end.iter().copied().collect()
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
    same_name! { reason, EndReason => wire::SessionEndReason:
        Interpreter Idle Lifetime Deleted NotInterrupted ChannelBroken NotReady Shutdown Evicted
    }
}

pub(super) fn isolation(sandbox: &Sandbox) -> wire::GetIsolationResponse {
    let report = sandbox.report();
    let lowest = sandbox.settings().lowest_isolation;
    let ready = report.is_ready(lowest);
    let reached = (report.level).map_or("no isolation level", IsolationLevel::name);
    let run = match ready {
        true => "run",
        false => "are refused; the host would run them",
    };
    let bounds = match report.enforcement {
        MemoryEnforcement::Sampled => {
            "bounded by rlimits and sampling, which do not see what the kernel keeps of mappings, \
             pipes and epoll"
        }
        MemoryEnforcement::CgroupV1 | MemoryEnforcement::CgroupV2 => "bounded by a cgroup",
    };
    let statement = format!(
        "Scripts {run} isolated as `{reached}`, memory and processes {bounds}. They share the host's \
         single kernel: a flaw in it is a way out."
    );
    let failure = |(failed, failure): &(IsolationLevel, Failure)| wire::LevelFailure {
        level: level(Some(*failed)).into(),
        layer: layer(failure.layer).into(),
        message: failure.message.clone(),
        errno: failure.errno,
    };
    let (default, maximum) = sandbox.limits();
    wire::GetIsolationResponse {
        level: level(report.level).into(),
        lowest_allowed: level(Some(lowest)).into(),
        ready,
        missing_layers: report.missing.iter().map(missing).collect(),
        memory_enforcement: enforcement(report.enforcement).into(),
        statement,
        landlock_abi: confine::landlock_abi(),
        allowed_syscalls: report.level.map_or(0, allowed_syscalls),
        failures: report.failures.iter().map(failure).collect(),
        default_limits: Some(limits(&default)),
        maximum_limits: Some(limits(&maximum)),
        reports_network_attempts: confine::reports_network(),
        maximum_streamed_output_bytes: sandbox.streamed_limits().1.output as u64,
        hardware: Some(hardware(&report.hardware)),
    }
}

/// The processor that scripts share.
fn hardware(hardware: &Hardware) -> wire::Hardware {
    let flaws = hardware.flaws.iter();
    let flaws = flaws.map(|(name, state)| wire::ProcessorFlaw {
        name: name.clone(),
        state: state.clone(),
    });
    let multithreading = match hardware.multithreading {
        Some(true) => wire::Multithreading::On,
        Some(false) => wire::Multithreading::Off,
        None => wire::Multithreading::Unspecified,
    };
    wire::Hardware {
        flaws: flaws.collect(),
        multithreading: multithreading.into(),
        store_bypass: hardware.store_bypass.clone(),
        indirect_branches: hardware.indirect_branches.clone(),
    }
}

fn allowed_syscalls(level: IsolationLevel) -> u32 {
    let is_root = rustix::process::geteuid().is_root();
    let profile = confine::profile_of(level != IsolationLevel::Reduced, is_root);
    u32::try_from(sandbox_launcher::seccomp::policy::allowed_calls(profile)).unwrap_or(u32::MAX)
}

pub(super) fn runtime(
    sandbox: &Sandbox,
    runtime: &Runtime,
    sets: &[Packages],
    tenant: Option<Tenant>,
) -> wire::Runtime {
    let pool = sandbox.pool_state(runtime, Some(None), tenant);
    let sets = sets.iter();
    let of_runtime = sets.filter(|packages| packages.set.runtime == runtime.profile.name);
    let package_sets = of_runtime.map(|packages| {
        let digest = Some(packages.set.digest.as_str());
        let pool = sandbox.pool_state(runtime, Some(digest), tenant);
        package_set(packages.set.clone(), problem_of(packages, runtime), pool)
    });
    let package_sets = package_sets.collect();
    let interpreter = runtime.interpreter.as_ref();
    let version = interpreter.map_or_else(|_| String::new(), |found| found.version.clone());
    let problem = interpreter.err().cloned().unwrap_or_default();
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
        package_sets,
    }
}

fn package_set(set: PackageSet, problem: Option<String>, pool: PoolState) -> wire::PackageSet {
    let package = |(name, version)| wire::Package { name, version };
    wire::PackageSet {
        name: set.name,
        digest: set.digest,
        packages: set.packages.into_iter().map(package).collect(),
        modules: set.modules,
        warm: set.warm,
        size_bytes: set.bytes,
        problem: problem.unwrap_or_default(),
        warm_ready: pool.ready,
        warm_problem: pool.problem,
    }
}

pub(super) fn verdict(verdict: &Verdict) -> Kind {
    let time = |time| Some(duration(time));
    match verdict.clone() {
        Verdict::Exited { code } => Kind::Exited(wire::Exited { code }),
        Verdict::Signalled { signal } => Kind::Signalled(wire::Signalled {
            signal,
            name: signal_name(signal),
        }),
        Verdict::Wall { limit, observed } => Kind::Wall(wire::WallExceeded {
            limit: time(limit),
            observed: time(observed),
        }),
        Verdict::Cpu { limit, observed } => Kind::Cpu(wire::CpuExceeded {
            limit: time(limit),
            observed: time(observed),
        }),
        Verdict::Memory { limit, observed } => Kind::Memory(wire::MemoryExceeded {
            limit_bytes: limit,
            observed_bytes: observed,
        }),
        Verdict::Processes {
            limit,
            observed,
            refused,
        } => Kind::Processes(wire::ProcessesExceeded {
            limit,
            observed,
            refused,
        }),
        Verdict::Output {
            stream,
            limit,
            observed,
        } => Kind::Output(wire::OutputExceeded {
            stream: output_stream(stream).into(),
            limit_bytes: limit,
            observed_bytes: observed,
        }),
        Verdict::Disk {
            limit,
            observed,
            limit_files,
            observed_files,
        } => Kind::Disk(wire::DiskExceeded {
            limit_bytes: limit,
            observed_bytes: observed,
            limit_files,
            observed_files,
        }),
        Verdict::ForbiddenSyscall { signal } => {
            Kind::ForbiddenSyscall(wire::ForbiddenSyscall { signal })
        }
        Verdict::Network { attempts } => Kind::NetworkDenied(wire::NetworkDenied { attempts }),
        Verdict::Cancelled { after } => Kind::Cancelled(wire::Cancelled { after: time(after) }),
        Verdict::LauncherFailure(failure) => Kind::LauncherFailure(wire::LauncherFailure {
            layer: layer(failure.layer).into(),
            message: failure.message,
            errno: failure.errno,
        }),
    }
}

fn output_stream(stream: Stream) -> wire::OutputStream {
    same_name! { stream, Stream => wire::OutputStream: Stdout Stderr Result }
}

fn signal_name(signal: i32) -> String {
    macro_rules! known {
        ($($name:ident)*) => {
            match signal {
                $(libc::$name => stringify!($name).to_owned(),)*
                other => format!("SIG{other}"),
            }
        };
    }
    known! {
        SIGHUP SIGINT SIGQUIT SIGILL SIGTRAP SIGABRT SIGBUS SIGFPE SIGKILL SIGUSR1 SIGSEGV SIGUSR2
        SIGPIPE SIGALRM SIGTERM SIGXCPU SIGXFSZ SIGSYS
    }
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
    level.map_or(wire::IsolationLevel::Unspecified, |level| {
        same_name! { level, IsolationLevel => wire::IsolationLevel: Reduced FullWithoutProc Full }
    })
}

pub(super) fn enforcement(enforcement: MemoryEnforcement) -> wire::MemoryEnforcement {
    same_name! { enforcement, MemoryEnforcement => wire::MemoryEnforcement:
        Sampled CgroupV1 CgroupV2
    }
}

fn layer(layer: Layer) -> wire::IsolationLayer {
    same_name! { layer, Layer => wire::IsolationLayer:
        Launch UserNamespace MountNamespace PidNamespace NetworkNamespace IpcNamespace UtsNamespace
        CgroupNamespace Root Proc CgroupLimits Rlimits Landlock LandlockScopes Seccomp Privileges
        Keyring Files Exec DiskQuota
    }
}

pub(super) fn duration(duration: Duration) -> prost_types::Duration {
    prost_types::Duration {
        seconds: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(duration.subsec_nanos()).unwrap_or(0),
    }
}
