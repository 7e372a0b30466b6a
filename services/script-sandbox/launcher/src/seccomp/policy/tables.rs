//! The calls by name. Each list gives the reason for its members.

use libc::*;

/// The calls that CPython, Node.js, Bash and the usual small tools need, and calls that cannot
/// reach beyond the script's own processes, files and memory.
#[rustfmt::skip] // a paragraph for each group
pub(super) const ALLOWED: &[c_long] = &[
    // Files and directories.
    SYS_read, SYS_write, SYS_readv, SYS_writev, SYS_pread64, SYS_pwrite64, SYS_preadv, SYS_pwritev,
    SYS_close, SYS_close_range, SYS_fstat, SYS_newfstatat, SYS_statx, SYS_faccessat, SYS_faccessat2,
    SYS_lseek, SYS_truncate, SYS_ftruncate, SYS_fallocate, SYS_getdents64, SYS_getcwd, SYS_chdir,
    SYS_fchdir, SYS_renameat, SYS_renameat2, SYS_mkdirat, SYS_linkat, SYS_unlinkat, SYS_symlinkat,
    SYS_readlinkat, SYS_umask, SYS_statfs, SYS_fstatfs, SYS_sendfile,
    // The older forms that C libraries on this machine still use.
    SYS_stat, SYS_lstat, SYS_access, SYS_rename, SYS_mkdir, SYS_rmdir, SYS_link, SYS_unlink,
    SYS_symlink, SYS_readlink, SYS_pipe, SYS_dup2, SYS_poll, SYS_epoll_wait, SYS_vfork, SYS_alarm,
    SYS_pause, SYS_getpgrp,
    // Descriptors and waiting for them.
    SYS_pipe2, SYS_dup, SYS_dup3, SYS_ppoll, SYS_pselect6, SYS_epoll_create1, SYS_epoll_pwait,
    SYS_eventfd2,
    // Memory.
    SYS_mprotect, SYS_munmap, SYS_mremap, SYS_brk,
    // Signals to oneself and alarms.
    SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_rt_sigsuspend, SYS_rt_sigtimedwait,
    SYS_sigaltstack, SYS_restart_syscall, SYS_getitimer, SYS_setitimer,
    // Time.
    SYS_nanosleep, SYS_gettimeofday, SYS_times,
    // Processes and threads.
    SYS_execve, SYS_exit, SYS_exit_group, SYS_wait4, SYS_waitid, SYS_futex, SYS_set_tid_address,
    SYS_set_robust_list, SYS_rseq, SYS_sched_yield, SYS_getpid, SYS_getppid, SYS_gettid,
    SYS_setpgid, SYS_setsid, SYS_getrusage,
    // Identity of the process and of the machine.
    SYS_getuid, SYS_geteuid, SYS_getgid, SYS_getegid, SYS_getresuid, SYS_getresgid, SYS_getgroups,
    SYS_uname, SYS_sysinfo, SYS_getrandom,
    // Connected sockets; the rules for making one are separate.
    SYS_sendto, SYS_recvfrom, SYS_sendmsg, SYS_recvmsg, SYS_shutdown, SYS_getsockname,
    SYS_getpeername,
];

/// Calls that need rights a script never has, and calls that act on other processes or the machine.
/// Programs try these and continue when they are refused.
#[rustfmt::skip] // a paragraph for each group
pub(super) const ANSWERED_EPERM: &[c_long] = &[
    // Mounts and roots.
    SYS_mount, SYS_umount2, SYS_pivot_root, SYS_chroot, SYS_fsopen, SYS_fsconfig, SYS_fsmount,
    SYS_fspick, SYS_open_tree, SYS_move_mount, SYS_mount_setattr, SYS_name_to_handle_at,
    SYS_open_by_handle_at, SYS_quotactl, SYS_quotactl_fd,
    // Namespaces.
    SYS_unshare, SYS_setns,
    // Other processes.
    SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_pidfd_getfd, SYS_pidfd_send_signal,
    SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo, SYS_kcmp, SYS_process_madvise, SYS_process_mrelease,
    SYS_move_pages, SYS_migrate_pages,
    // The script's own confinement.
    SYS_seccomp, SYS_landlock_create_ruleset, SYS_landlock_add_rule, SYS_landlock_restrict_self,
    SYS_capset, SYS_setuid, SYS_setgid, SYS_setreuid, SYS_setregid, SYS_setresuid, SYS_setresgid,
    SYS_setfsuid, SYS_setfsgid, SYS_setgroups, SYS_chown, SYS_fchown, SYS_lchown, SYS_fchownat,
    // The share of the machine.
    SYS_setpriority, SYS_sched_setaffinity, SYS_sched_setparam, SYS_sched_setscheduler,
    SYS_sched_setattr, SYS_ioprio_set, SYS_setrlimit, SYS_mlock, SYS_mlock2, SYS_mlockall,
    SYS_mbind, SYS_set_mempolicy, SYS_sync,
    // The machine itself.
    SYS_clock_settime, SYS_settimeofday, SYS_adjtimex, SYS_clock_adjtime, SYS_sethostname,
    SYS_setdomainname, SYS_personality, SYS_reboot, SYS_swapon, SYS_swapoff, SYS_acct, SYS_syslog,
    SYS_vhangup, SYS_iopl, SYS_modify_ldt, SYS_kexec_load, SYS_kexec_file_load, SYS_init_module,
    SYS_finit_module, SYS_delete_module, SYS_bpf, SYS_perf_event_open, SYS_fanotify_init,
    SYS_fanotify_mark,
];

/// Extended attributes: libraries that copy files read this answer as `the file system has none`.
#[rustfmt::skip] // a paragraph for each group
pub(super) const ANSWERED_ENOTSUP: &[c_long] = &[
    SYS_getxattr, SYS_lgetxattr, SYS_fgetxattr, SYS_setxattr, SYS_lsetxattr, SYS_fsetxattr,
    SYS_listxattr, SYS_llistxattr, SYS_flistxattr, SYS_removexattr, SYS_lremovexattr,
    SYS_fremovexattr,
];

/// Calls that no library probes for and no interpreter makes: a script that makes one has no honest
/// reason.
#[rustfmt::skip] // a paragraph for each group
pub(super) const DEADLY: &[c_long] = &[
    SYS_ioperm, SYS_uselib, SYS_nfsservctl, SYS__sysctl, SYS_afs_syscall, SYS_tuxcall, SYS_security,
    SYS_vserver, SYS_getpmsg, SYS_putpmsg, SYS_lookup_dcookie,
];

/// Queries of terminals and pipes, and the two flags that have an ioctl form.
#[rustfmt::skip] // a paragraph
pub(super) const IOCTLS: &[u64] = &[
    TCGETS, TIOCGWINSZ, TIOCGPGRP, FIONREAD, FIONBIO, FIOCLEX, FIONCLEX,
];

/// Flags, copies, queries of locks, and queries of pipes. Not: leases, notifications and owners,
/// which act on files that others share and on other processes; nor larger pipes, which take from
/// the kernel's allowance for all processes of a user together; nor seals, as no file that could be
/// sealed can be made. Locks have rules of their own.
#[rustfmt::skip] // a paragraph
pub(super) const FCNTLS: &[u64] = &[
    F_DUPFD as u64, F_DUPFD_CLOEXEC as u64, F_GETFD as u64, F_SETFD as u64, F_GETFL as u64,
    F_SETFL as u64, F_GETLK as u64, F_GETPIPE_SZ as u64, F_GET_SEALS as u64,
];

/// Names of threads, and queries. Not: names of mappings, which the kernel stores in memory that it
/// charges to no process; allocators try to set them and do without.
#[rustfmt::skip] // a paragraph
pub(super) const PRCTLS: &[u64] = &[
    PR_SET_PDEATHSIG as u64, PR_GET_PDEATHSIG as u64, PR_GET_DUMPABLE as u64,
    PR_SET_DUMPABLE as u64, PR_SET_NAME as u64, PR_GET_NAME as u64, PR_GET_SECCOMP as u64,
    PR_CAPBSET_READ as u64, PR_SET_NO_NEW_PRIVS as u64, PR_GET_NO_NEW_PRIVS as u64,
];

const ARCH_SET_FS: u64 = 0x1002;
const ARCH_GET_FS: u64 = 0x1003;

/// The thread pointer.
pub(super) const ARCH_PRCTLS: &[u64] = &[ARCH_SET_FS, ARCH_GET_FS];

/// The query, and the private barrier with its registration.
#[rustfmt::skip] // a paragraph
pub(super) const MEMBARRIERS: &[u64] = &[
    MEMBARRIER_CMD_QUERY as u64, MEMBARRIER_CMD_PRIVATE_EXPEDITED as u64,
    MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED as u64,
];
