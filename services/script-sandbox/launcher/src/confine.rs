//! The limits that a process puts on itself and can never take back.

use std::os::fd::OwnedFd;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope,
};

use crate::{
    seccomp::{self, Profile, policy},
    sys,
};
use sandbox_protocol::{
    plan::{Confinement, INPUT_DIRECTORY, LaunchPlan, ProcessLimits, WORK_DIRECTORY},
    report::{At, Failure, Layer, Step},
};

/// The newest Landlock ABI whose rights are used.
const NEWEST: ABI = ABI::V6;

/// The first Landlock ABI that keeps signals and abstract sockets inside.
const FIRST_WITH_SCOPES: u32 = 6;

const DEVICES: [&str; 5] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
];

/// The profile of the system call list under a plan.
pub(crate) fn profile(plan: &LaunchPlan) -> Profile {
    let namespaces = matches!(plan.confinement, Confinement::Namespaces(_));
    Profile {
        reports_network: plan.report_network,
        counts_watches: plan.epoll_watches.is_some(),
        ..profile_of(namespaces, plan.outside_user.is_some())
    }
}

/// The profile of the system call list, with or without namespaces of the script's own, and with or
/// without a user of the script's own.
pub fn profile_of(namespaces: bool, own_user: bool) -> Profile {
    Profile {
        own_network: namespaces,
        own_processes: namespaces,
        signals_contained: namespaces || has_scopes(),
        reports_network: false,
        counts_watches: !own_user,
        own_root: namespaces,
        own_files: namespaces || own_user,
        on_disk: !namespaces,
    }
}

/// Returns whether the kernel can report attempts to use a network.
pub fn reports_network() -> bool {
    sys::can_tell_calls()
}

/// Returns the kernel's Landlock ABI version; 0 if it has none.
pub fn landlock_abi() -> u32 {
    sys::landlock_abi()
}

/// Returns whether Landlock can keep signals and abstract sockets inside.
pub(crate) fn has_scopes() -> bool {
    sys::landlock_abi() >= FIRST_WITH_SCOPES
}

/// Sets the limits per process, except on open files. Core files are never written: one byte is too
/// small for a file, and it is the only limit at which the kernel starts no handler of the host's
/// either.
pub(crate) fn limits(limits: &ProcessLimits) -> Step {
    const STACK_BYTES: u64 = 8 << 20;
    const PENDING_SIGNALS: u64 = 1024;
    let all = [
        (libc::RLIMIT_CORE, 1),
        (libc::RLIMIT_FSIZE, limits.file_bytes),
        (libc::RLIMIT_DATA, limits.data_bytes),
        (libc::RLIMIT_STACK, STACK_BYTES),
        (libc::RLIMIT_MEMLOCK, 0),
        (libc::RLIMIT_MSGQUEUE, 0),
        (libc::RLIMIT_SIGPENDING, PENDING_SIGNALS),
        (libc::RLIMIT_NICE, 0),
        (libc::RLIMIT_RTPRIO, 0),
        (libc::RLIMIT_NPROC, limits.processes),
    ];
    for (resource, value) in all {
        limit(resource, value, value)?;
    }
    // The first limit warns by SIGXCPU, from which the verdict is derived as well.
    limit(libc::RLIMIT_CPU, limits.cpu_seconds, limits.cpu_seconds + 1)
}

/// Sets the limit on open files. It comes last: the kernel compares it with the descriptors in
/// transit of all processes of the user, when this one sends its own.
pub(crate) fn open_files(limits: &ProcessLimits) -> Step {
    limit(libc::RLIMIT_NOFILE, limits.open_files, limits.open_files)
}

fn limit(resource: libc::__rlimit_resource_t, soft: u64, hard: u64) -> Step {
    let set = sys::limit(resource, soft, hard);
    set.at(
        Layer::Rlimits,
        format!("setting the limit number {resource}"),
    )
}

/// Restricts files, and sockets and signals where the kernel can, by Landlock.
pub(crate) fn landlock(plan: &LaunchPlan) -> Step {
    let refuse = |error: &dyn std::fmt::Display| {
        Failure::new(Layer::Landlock, format!("restricting files: {error}"), 0)
    };
    let mut ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(NEWEST))
        .and_then(|ruleset| ruleset.scope(Scope::from_all(NEWEST)))
        .map_err(|error| refuse(&error))?;
    if matches!(plan.confinement, Confinement::Reduced(_)) {
        ruleset = ruleset
            .handle_access(AccessNet::from_all(NEWEST))
            .map_err(|error| refuse(&error))?;
    }
    let mut created = ruleset.create().map_err(|error| refuse(&error))?;
    for (path, access) in rules(&plan.confinement) {
        let path = PathFd::new(&path).map_err(|error| refuse(&format!("{path}: {error}")))?;
        created = created
            .add_rule(PathBeneath::new(path, access))
            .map_err(|error| refuse(&error))?;
    }
    let status = created.restrict_self().map_err(|error| refuse(&error))?;
    match status.ruleset {
        RulesetStatus::NotEnforced => {
            let message = "the kernel has no landlock or it is switched off";
            Err(Failure::new(Layer::Landlock, message, libc::ENOSYS))
        }
        RulesetStatus::PartiallyEnforced | RulesetStatus::FullyEnforced => Ok(()),
    }
}

/// The rights below each path.
fn rules(confinement: &Confinement) -> Vec<(String, BitFlags<AccessFs>)> {
    // A file that is listed by itself may be the interpreter.
    let rights = |path: &std::path::Path| match path.is_dir() {
        true => AccessFs::ReadFile | AccessFs::ReadDir | AccessFs::Execute,
        false => AccessFs::ReadFile | AccessFs::Execute,
    };
    let device = AccessFs::ReadFile | AccessFs::WriteFile;
    let listed = AccessFs::ReadFile | AccessFs::ReadDir;
    let shown = |path: &std::path::Path| path.display().to_string();
    let write = AccessFs::from_all(NEWEST)
        & !(AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev);
    let mut rules: Vec<(String, BitFlags<AccessFs>)> = Vec::new();
    match confinement {
        Confinement::Namespaces(root) => {
            let scratch = [WORK_DIRECTORY, "/tmp", "/dev/shm"];
            // The root itself may be listed, its entries are granted one by one.
            rules.push(("/".to_owned(), AccessFs::ReadDir.into()));
            let files = root.files.iter();
            rules.extend(files.map(|(path, _)| (shown(path), AccessFs::ReadFile.into())));
            let moved = root.moved.iter().map(|(_, place)| place);
            let binds = root.binds.iter().chain(moved);
            rules.extend(binds.map(|path| (shown(path), rights(path))));
            rules.extend(scratch.map(|path| (path.to_owned(), write)));
            rules.push((INPUT_DIRECTORY.to_owned(), listed));
            if root.proc {
                rules.push(("/proc".to_owned(), listed));
            }
        }
        Confinement::Reduced(reduced) => {
            let readable = reduced.readable.iter().filter(|path| path.exists());
            rules.extend(readable.map(|path| (shown(path), rights(path))));
            rules.push((shown(&reduced.work), write));
            rules.push((shown(&reduced.temporary), write));
            rules.push((shown(&reduced.input), listed));
        }
    }
    rules.extend(DEVICES.map(|path| (path.to_owned(), device)));
    rules
}

/// Installs the system call filter; afterwards little but becoming the script is possible. Returns
/// the descriptor that reports calls to the init, if the profile reports any.
pub(crate) fn seccomp(profile: Profile) -> Step<Option<OwnedFd>> {
    let mut program = seccomp::compile(&policy::policy(profile));
    let installed = if profile.has_listener() {
        sys::install_telling_filter(&mut program).map(Some)
    } else {
        sys::install_filter(&mut program).map(|()| None)
    };
    installed.at(Layer::Seccomp, "installing the system call filter")
}
