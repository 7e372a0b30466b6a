//! The raw system calls, each wrapped so that the rest of the crate needs no `unsafe`.

use std::{
    ffi::{CStr, CString},
    io,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    ptr,
    time::Duration,
};

use libc::{c_int, c_long, c_ulong, pid_t};
use rustix::{
    net::{AddressFamily, SocketFlags, SocketType},
    process::{Gid, Pid, PidfdFlags, Signal, Uid},
    thread::{CapabilitySet, CapabilitySets},
};

/// The result of a fork, seen from one of the two sides.
pub(crate) enum Forked {
    /// The new process.
    Child,
    /// The old process, with the id of the new one.
    Parent(pid_t),
}

/// A child that ended.
pub(crate) struct Reaped {
    /// Its id.
    pub(crate) pid: pid_t,
    /// Its wait status.
    pub(crate) status: c_int,
    /// Processor time of it and of all it waited for.
    pub(crate) cpu: Duration,
    /// The largest resident size of it and of all it waited for, in bytes.
    pub(crate) max_bytes: u64,
}

fn check(result: c_long) -> io::Result<c_long> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Makes a call that the C library does not know.
///
/// # Safety
/// The arguments must be valid for the call.
unsafe fn call(number: c_long, arguments: [c_long; 5]) -> io::Result<c_long> {
    let [one, two, three, four, five] = arguments;
    // SAFETY: as the caller guarantees.
    check(unsafe { libc::syscall(number, one, two, three, four, five) })
}

/// An address as the argument of a call.
fn address<T>(value: *const T) -> c_long {
    value.expose_provenance() as c_long
}

/// Makes a new process, in the new namespaces that `flags` names.
pub(crate) fn fork(flags: c_int) -> io::Result<Forked> {
    let flags = c_long::from(flags | libc::SIGCHLD);
    // SAFETY: without CLONE_VM and with a null stack this is a fork: the child gets a copy of the
    // whole address space. The process has one thread, so no lock is held by a vanished thread.
    Ok(
        match unsafe { call(libc::SYS_clone, [flags, 0, 0, 0, 0]) }? {
            0 => Forked::Child,
            pid => Forked::Parent(pid as pid_t),
        },
    )
}

/// Ends this process without running any exit handler.
pub(crate) fn exit_now(code: c_int) -> ! {
    // SAFETY: takes no pointers and does not return.
    unsafe { libc::_exit(code) }
}

/// Waits for a child; `None` if none has ended, an error (ECHILD) if there is none.
pub(crate) fn reap(pid: pid_t, block: bool) -> io::Result<Option<Reaped>> {
    let mut status = 0;
    // SAFETY: an all-zero rusage is a valid value of that plain struct.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    let flags = if block { 0 } else { libc::WNOHANG };
    loop {
        // SAFETY: both pointers refer to live locals.
        let waited = unsafe { libc::wait4(pid, &raw mut status, flags, &raw mut usage) };
        match check(waited.into()) {
            Ok(0) => return Ok(None),
            Ok(pid) => {
                let (cpu, max_bytes) = used(&usage);
                return Ok(Some(Reaped {
                    pid: pid as pid_t,
                    status,
                    cpu,
                    max_bytes,
                }));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Processor time of this process and of all it waited for, and the largest resident size among them,
/// in bytes.
pub(crate) fn usage() -> io::Result<(Duration, u64)> {
    let mut all = (Duration::ZERO, 0);
    for who in [libc::RUSAGE_SELF, libc::RUSAGE_CHILDREN] {
        // SAFETY: an all-zero rusage is a valid value of that plain struct.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: the pointer refers to a live local.
        check(unsafe { libc::getrusage(who, &raw mut usage) }.into())?;
        let (cpu, max_bytes) = used(&usage);
        all = (all.0 + cpu, max_bytes.max(all.1));
    }
    Ok(all)
}

fn used(usage: &libc::rusage) -> (Duration, u64) {
    let max_bytes = u64::try_from(usage.ru_maxrss).unwrap_or(0) * 1024;
    (
        duration(usage.ru_utime) + duration(usage.ru_stime),
        max_bytes,
    )
}

fn duration(time: libc::timeval) -> Duration {
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_usec)
            .unwrap_or(0)
            .saturating_mul(1000),
    )
}

/// Sends a signal.
pub(crate) fn kill(pid: pid_t, signal: c_int) -> io::Result<()> {
    // SAFETY: takes no pointers.
    check(unsafe { libc::kill(pid, signal) }.into()).map(drop)
}

/// Opens a process, so that its number cannot come to mean another process.
pub(crate) fn hold(pid: pid_t) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::NotFound)?;
    Ok(rustix::process::pidfd_open(pid, PidfdFlags::empty())?)
}

/// Returns whether two processes share their memory.
pub(crate) fn share_memory(one: c_int, other: c_int) -> io::Result<bool> {
    const KCMP_VM: c_long = 1;
    // SAFETY: the call takes numbers only.
    let order = unsafe { call(libc::SYS_kcmp, [one.into(), other.into(), KCMP_VM, 0, 0]) }?;
    Ok(order == 0)
}

/// Sends a signal to an open process, or to every process of its group.
pub(crate) fn kill_held(process: BorrowedFd<'_>, signal: c_int, group: bool) -> io::Result<()> {
    /// `PIDFD_SIGNAL_PROCESS_GROUP`, which kernels before 6.9 do not have.
    const PROCESS_GROUP: c_long = 1 << 2;
    let (process, group) = (
        process.as_raw_fd().into(),
        if group { PROCESS_GROUP } else { 0 },
    );
    let arguments = [process, signal.into(), 0, group, 0];
    // SAFETY: the descriptor is open, and a null pointer stands for the ordinary information.
    unsafe { call(libc::SYS_pidfd_send_signal, arguments) }.map(drop)
}

/// Makes the kernel kill this process when its parent thread ends.
pub(crate) fn die_with_parent() -> io::Result<()> {
    Ok(rustix::process::set_parent_process_death_signal(Some(
        Signal::KILL,
    ))?)
}

/// Makes this process the parent of its descendants' orphans.
pub(crate) fn adopt_orphans() -> io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(Pid::INIT))?)
}

/// Gives up every capability.
pub(crate) fn drop_capabilities() -> io::Result<()> {
    let none = CapabilitySet::empty();
    let none = CapabilitySets {
        effective: none,
        permitted: none,
        inheritable: none,
    };
    Ok(rustix::thread::set_capabilities(None, none)?)
}

/// Sets the user and group id in all their forms, and drops all other groups where that is
/// possible.
pub(crate) fn become_user(id: u32, clear_groups: bool) -> io::Result<()> {
    if clear_groups {
        rustix::thread::set_thread_groups(&[])?;
    }
    let (user, group) = (Uid::from_raw(id), Gid::from_raw(id));
    rustix::thread::set_thread_res_gid(group, group, group)?;
    Ok(rustix::thread::set_thread_res_uid(user, user, user)?)
}

/// Limits one resource; the first value is the soft limit. Where this process itself has less and
/// may not raise it, it keeps its own limit; except for core files, where less is not safer.
pub(crate) fn limit(resource: libc::__rlimit_resource_t, soft: u64, hard: u64) -> io::Result<()> {
    let set = |limit: libc::rlimit| {
        // SAFETY: the pointer refers to a live local.
        check(unsafe { libc::setrlimit(resource, &raw const limit) }.into()).map(drop)
    };
    let wanted = libc::rlimit {
        rlim_cur: soft,
        rlim_max: hard,
    };
    let Err(error) = set(wanted) else {
        return Ok(());
    };
    let mut own = wanted;
    // SAFETY: the pointer refers to a live local.
    check(unsafe { libc::getrlimit(resource, &raw mut own) }.into())?;
    // With less than a byte for core files the kernel passes a crash to the host's handler.
    if own.rlim_max >= hard || resource == libc::RLIMIT_CORE {
        return Err(error);
    }
    set(libc::rlimit {
        rlim_cur: soft.min(own.rlim_max),
        rlim_max: own.rlim_max,
    })
}

/// Joins a new anonymous session keyring.
pub(crate) fn new_keyring() -> io::Result<()> {
    const JOIN_SESSION_KEYRING: c_long = 1;
    // SAFETY: a null name requests an anonymous keyring.
    unsafe { call(libc::SYS_keyctl, [JOIN_SESSION_KEYRING, 0, 0, 0, 0]) }.map(drop)
}

/// Leaves for new namespaces.
pub(crate) fn unshare(flags: c_int) -> io::Result<()> {
    // SAFETY: takes a plain number; the process has one thread.
    check(unsafe { libc::unshare(flags) }.into()).map(drop)
}

/// Closes every descriptor from `first` on.
pub(crate) fn close_from(first: c_int) -> io::Result<()> {
    close_range(first, 0)
}

/// Closes every descriptor from `first` on when this process becomes another program.
pub(crate) fn close_on_exec_from(first: c_int) -> io::Result<()> {
    close_range(first, libc::CLOSE_RANGE_CLOEXEC as c_long)
}

fn close_range(first: c_int, flags: c_long) -> io::Result<()> {
    let arguments = [first.into(), u32::MAX.into(), flags, 0, 0];
    // SAFETY: the callers hold no owned descriptor above `first` that they use or drop afterwards:
    // they are about to exec, or have just started.
    unsafe { call(libc::SYS_close_range, arguments) }.map(drop)
}

/// Returns the kernel's Landlock ABI version; 0 if it has none.
pub(crate) fn landlock_abi() -> u32 {
    const VERSION: c_long = 1;
    // SAFETY: with this flag the kernel reads no attributes.
    let version = unsafe { call(libc::SYS_landlock_create_ruleset, [0, 0, VERSION, 0, 0]) };
    u32::try_from(version.unwrap_or(0)).unwrap_or(0)
}

/// Makes `fd` appear under another number, without close-on-exec.
pub(crate) fn duplicate_to(fd: BorrowedFd<'_>, number: c_int) -> io::Result<()> {
    // SAFETY: the callers use only numbers that no owned descriptor of theirs has.
    check(unsafe { libc::dup2(fd.as_raw_fd(), number) }.into()).map(drop)
}

/// Moves `fd` to the lowest free number from `least` on, with close-on-exec.
pub(crate) fn move_above(fd: OwnedFd, least: c_int) -> io::Result<OwnedFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(fd, least)?)
}

/// Sets the mount attributes of everything mounted at and below `path`.
pub(crate) fn mount_attributes(path: &CStr, set: u64, recursive: bool) -> io::Result<()> {
    let attributes = libc::mount_attr {
        attr_set: set,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    let flags = if recursive { libc::AT_RECURSIVE } else { 0 };
    let arguments = [
        libc::AT_FDCWD.into(),
        address(path.as_ptr()),
        flags.into(),
        address(&raw const attributes),
        size_of::<libc::mount_attr>() as c_long,
    ];
    // SAFETY: the path is a C string, the attributes live on the stack and their size is passed.
    unsafe { call(libc::SYS_mount_setattr, arguments) }.map(drop)
}

/// Brings up the loopback interface of the network namespace.
pub(crate) fn loopback_up() -> io::Result<()> {
    let (family, kind) = (AddressFamily::INET, SocketType::DGRAM);
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    // SAFETY: an all-zero ifreq is a valid value of that plain struct.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, byte) in request.ifr_name.iter_mut().zip(b"lo") {
        *place = *byte as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: SIOCSIFFLAGS reads one ifreq.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw mut request) }.into())
        .map(drop)
}

/// A set with one signal in it.
fn only(signal: c_int) -> libc::sigset_t {
    // SAFETY: an all-zero set is valid, and sigemptyset and sigaddset only write to it.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, signal);
        set
    }
}

/// Blocks SIGCHLD and returns a descriptor that becomes readable when a child ends.
pub(crate) fn child_events() -> io::Result<OwnedFd> {
    let set = only(libc::SIGCHLD);
    // SAFETY: the set is a live local; the old set is not requested.
    check(unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut()) }.into())?;
    let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
    // SAFETY: the set is a live local.
    let fd = check(unsafe { libc::signalfd(-1, &raw const set, flags) }.into())?;
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as c_int) })
}

/// Gives every signal its default action and blocks none, as a new program expects.
pub(crate) fn reset_signals() {
    // SAFETY: SIG_DFL is valid for every signal; the two that refuse it are left alone.
    unsafe {
        for signal in 1..=64 {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
    }
}

/// Installs a system call filter for good.
pub(crate) fn install_filter(program: &mut [libc::sock_filter]) -> io::Result<()> {
    seccomp_filter(program, 0).map(drop)
}

/// Does the same with a filter that reports calls; returns the descriptor that reports them. It is
/// closed when this process becomes another program.
pub(crate) fn install_telling_filter(program: &mut [libc::sock_filter]) -> io::Result<OwnedFd> {
    let fd = seccomp_filter(program, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER)?;
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as c_int) })
}

fn seccomp_filter(program: &mut [libc::sock_filter], flags: c_ulong) -> io::Result<c_long> {
    let length = u16::try_from(program.len())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "the filter is too long"))?;
    let program = libc::sock_fprog {
        len: length,
        filter: program.as_mut_ptr(),
    };
    let mode = c_long::from(libc::SECCOMP_SET_MODE_FILTER);
    let arguments = [mode, flags as c_long, address(&raw const program), 0, 0];
    // SAFETY: the program's pointer and length describe a live slice, which the kernel copies.
    unsafe { call(libc::SYS_seccomp, arguments) }
}

/// Returns whether the kernel supports filters that report calls.
pub(crate) fn can_tell_calls() -> bool {
    let action = libc::SECCOMP_RET_USER_NOTIF;
    let arguments = [
        libc::SECCOMP_GET_ACTION_AVAIL.into(),
        0,
        address(&raw const action),
        0,
        0,
    ];
    // SAFETY: the kernel reads one word from the pointer, which refers to a live local.
    unsafe { call(libc::SYS_seccomp, arguments) }.is_ok()
}

/// A call that a filter reports, whose process waits.
pub(crate) struct WaitingCall {
    id: u64,
    /// The call's number.
    pub(crate) number: c_long,
}

/// Receives one call that a filter reports, and leaves its process waiting. Call it only when the
/// descriptor is readable. `None`: the process has died meanwhile.
pub(crate) fn take_reported_call(listener: BorrowedFd<'_>) -> io::Result<Option<WaitingCall>> {
    // SAFETY: an all-zero value of that plain struct is valid, and the kernel requires one.
    let mut call: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    let receive = libc::SECCOMP_IOCTL_NOTIF_RECV;
    // SAFETY: the pointer refers to a live local of the type that the request names.
    let taken = check(unsafe { libc::ioctl(listener.as_raw_fd(), receive, &raw mut call) }.into());
    Ok(unless_gone(taken)?.map(|_| WaitingCall {
        id: call.id,
        number: call.data.nr.into(),
    }))
}

/// Lets a waiting call proceed, or fail with an error number. The decision must not depend on the
/// memory behind its arguments: the process can change that meanwhile.
pub(crate) fn answer_reported_call(
    listener: BorrowedFd<'_>,
    call: &WaitingCall,
    refusal: Option<c_int>,
) -> io::Result<()> {
    let carry_on = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
    let mut answer = libc::seccomp_notif_resp {
        id: call.id,
        val: 0,
        error: refusal.map_or(0, |errno| -errno),
        flags: if refusal.is_none() { carry_on } else { 0 },
    };
    let send = libc::SECCOMP_IOCTL_NOTIF_SEND;
    // SAFETY: the pointer refers to a live local of the type that the request names.
    let sent = check(unsafe { libc::ioctl(listener.as_raw_fd(), send, &raw mut answer) }.into());
    unless_gone(sent).map(|_| ())
}

/// `None` if the process that made a call has died or was interrupted meanwhile.
fn unless_gone(result: io::Result<c_long>) -> io::Result<Option<c_long>> {
    match result {
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => Ok(None),
        other => other.map(Some),
    }
}

/// Becomes another program; returns only if that fails.
pub(crate) fn execute(command: &[CString], environment: &[CString]) -> io::Error {
    let pointers = |strings: &[CString]| -> Vec<*const libc::c_char> {
        strings
            .iter()
            .map(|string| string.as_ptr())
            .chain([ptr::null()])
            .collect()
    };
    let (arguments, variables) = (pointers(command), pointers(environment));
    let Some(program) = command.first() else {
        return io::Error::new(io::ErrorKind::InvalidInput, "the command is empty");
    };
    // SAFETY: both arrays end with a null pointer and point to C strings that live until the call.
    unsafe { libc::execve(program.as_ptr(), arguments.as_ptr(), variables.as_ptr()) };
    io::Error::last_os_error()
}
