//! Interprets the compiled filter and compares it with the policy.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::{
    compile::{NATIVE_ARCH, X32_BIT, compile},
    policy::{self, Answer, Condition, Entry, NAMESPACE_FLAGS, Profile, UNNAMED},
};

mod sockets;

const I386_ARCH: u32 = 0x4000_0003;
const ARM64_ARCH: u32 = 0xc000_00b7;

const PROFILES: [Profile; 5] = [
    Profile {
        own_network: true,
        own_processes: true,
        own_root: true,
        signals_contained: true,
        reports_network: false,
        own_files: true,
        counts_watches: false,
        on_disk: false,
    },
    Profile {
        own_network: false,
        own_processes: false,
        own_root: false,
        signals_contained: true,
        reports_network: false,
        own_files: true,
        counts_watches: false,
        on_disk: true,
    },
    Profile {
        own_network: false,
        own_processes: false,
        own_root: false,
        signals_contained: false,
        reports_network: false,
        own_files: false,
        counts_watches: true,
        on_disk: true,
    },
    Profile {
        own_network: true,
        own_processes: true,
        own_root: true,
        signals_contained: true,
        reports_network: true,
        own_files: true,
        counts_watches: false,
        on_disk: false,
    },
    Profile {
        own_network: false,
        own_processes: false,
        own_root: false,
        signals_contained: false,
        reports_network: true,
        own_files: false,
        counts_watches: true,
        on_disk: true,
    },
];

/// The kernel's view of a call.
#[derive(Clone, Copy, Debug)]
struct Call {
    number: u32,
    arch: u32,
    arguments: [u64; 6],
}

impl Call {
    fn native(number: i64, arguments: &[u64]) -> Call {
        let mut all = [0; 6];
        all[..arguments.len()].copy_from_slice(arguments);
        Call {
            number: number as u32,
            arch: NATIVE_ARCH,
            arguments: all,
        }
    }

    fn word(&self, offset: u32) -> u32 {
        match offset {
            0 => self.number,
            4 => self.arch,
            16..64 => {
                let argument = self.arguments[((offset - 16) / 8) as usize];
                if offset.is_multiple_of(8) {
                    argument as u32
                } else {
                    (argument >> 32) as u32
                }
            }
            other => panic!("the filter reads offset {other}"),
        }
    }
}

/// Interprets a filter as the kernel does.
fn interpret(program: &[libc::sock_filter], call: &Call) -> Answer {
    let (mut accumulator, mut at) = (0_u32, 0_usize);
    for _ in 0..program.len() {
        let step = program[at];
        at += 1;
        let branch = |taken: bool| usize::from(if taken { step.jt } else { step.jf });
        match step.code {
            0x20 => accumulator = call.word(step.k),
            0x54 => accumulator &= step.k,
            0x15 => at += branch(accumulator == step.k),
            0x35 => at += branch(accumulator >= step.k),
            0x06 => {
                return match step.k & 0xffff_0000 {
                    libc::SECCOMP_RET_ALLOW => Answer::Allow,
                    libc::SECCOMP_RET_ERRNO => Answer::Errno((step.k & 0xffff) as i32),
                    libc::SECCOMP_RET_KILL_PROCESS => Answer::Kill,
                    libc::SECCOMP_RET_USER_NOTIF => Answer::Tell,
                    other => panic!("the filter returns {other:x}"),
                };
            }
            other => panic!("the filter has the code {other:x}"),
        }
    }
    panic!("the filter does not end");
}

/// The answer that the policy declares, computed without the compiler.
fn declared(entries: &BTreeMap<u32, Entry>, call: &Call) -> Answer {
    if call.arch != NATIVE_ARCH || call.number >= X32_BIT {
        return Answer::Kill;
    }
    let Some(entry) = entries.get(&call.number) else {
        return UNNAMED;
    };
    let mut cases = entry.cases.iter();
    let first = cases.find(|(conditions, _)| hold(conditions, call));
    first.map_or(entry.otherwise, |(_, answer)| *answer)
}

fn hold(conditions: &[Condition], call: &Call) -> bool {
    conditions
        .iter()
        .all(|test| call.arguments[test.argument as usize] & test.mask == test.value)
}

/// Every condition of an entry.
fn conditions(entry: &Entry) -> Vec<Condition> {
    let all = entry.cases.iter().flat_map(|(conditions, _)| conditions);
    all.copied().collect()
}

fn by_number(entries: &[Entry]) -> BTreeMap<u32, Entry> {
    let numbered = |entry: &Entry| (entry.number as u32, entry.clone());
    entries.iter().map(numbered).collect()
}

fn answer(profile: Profile, number: i64, arguments: &[u64]) -> Answer {
    interpret(
        &compile(&policy::policy(profile)),
        &Call::native(number, arguments),
    )
}

/// Arguments on the edges of the policy's tests.
fn edges(entries: &[Entry]) -> Vec<u64> {
    let mut values = BTreeSet::from([0, 1, u64::from(u32::MAX), 1 << 32, u64::MAX, 1 << 63]);
    for entry in entries {
        for test in conditions(entry) {
            for value in [test.value, test.mask, !test.mask, test.value | 1 << 40] {
                values.extend([value, value.wrapping_add(1), value.wrapping_sub(1)]);
            }
        }
    }
    values.extend((0..32).map(|bit| 1 << bit));
    values.into_iter().collect()
}

#[test]
fn every_number_and_tag_is_answered_as_declared() {
    for profile in PROFILES {
        let entries = policy::policy(profile);
        let (program, table) = (compile(&entries), by_number(&entries));
        for number in (0..1024).chain([X32_BIT - 1, X32_BIT, X32_BIT + 59, u32::MAX]) {
            for arch in [NATIVE_ARCH, I386_ARCH, ARM64_ARCH, 0] {
                let call = Call {
                    number,
                    arch,
                    arguments: [0; 6],
                };
                assert_eq!(
                    interpret(&program, &call),
                    declared(&table, &call),
                    "{call:?}"
                );
            }
        }
    }
}

#[test]
fn every_edge_of_every_argument_is_answered_as_declared() {
    for profile in PROFILES {
        let entries = policy::policy(profile);
        let (program, table) = (compile(&entries), by_number(&entries));
        let values = edges(&entries);
        let conditional = entries.iter().filter(|entry| !entry.cases.is_empty());
        for entry in conditional {
            for place in 0..4 {
                for &value in &values {
                    for &other in &[0, 1, 2, 6, 10, 41] {
                        let mut call = Call::native(entry.number, &[other; 6]);
                        call.arguments[place] = value;
                        assert_eq!(
                            interpret(&program, &call),
                            declared(&table, &call),
                            "{call:?}"
                        );
                    }
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn any_call_is_answered_as_declared(
        number in prop_oneof![0_u32..600, any::<u32>()],
        arch in prop_oneof![8 => Just(NATIVE_ARCH), 1 => Just(I386_ARCH), 1 => any::<u32>()],
        arguments in any::<[u64; 6]>(),
    ) {
        for profile in PROFILES {
            let entries = policy::policy(profile);
            let call = Call { number, arch, arguments };
            prop_assert_eq!(
                interpret(&compile(&entries), &call),
                declared(&by_number(&entries), &call)
            );
        }
    }
}

#[test]
fn no_call_is_named_twice() {
    for profile in PROFILES {
        let entries = policy::policy(profile);
        assert_eq!(by_number(&entries).len(), entries.len());
    }
}

#[test]
fn the_filter_fits_the_kernel() {
    for profile in PROFILES {
        assert!(compile(&policy::policy(profile)).len() <= libc::BPF_MAXINSNS as usize);
    }
}

#[test]
fn no_namespace_can_be_made() {
    for bit in (0..32)
        .map(|bit| 1_u64 << bit)
        .filter(|bit| bit & NAMESPACE_FLAGS != 0)
    {
        let flags = [
            bit | libc::SIGCHLD as u64,
            bit | libc::CLONE_VM as u64,
            bit | 1 << 40,
        ];
        for flags in flags {
            let answer = answer(PROFILES[0], libc::SYS_clone, &[flags]);
            assert_eq!(answer, Answer::Errno(libc::EPERM), "{flags:x}");
        }
    }
    assert_eq!(
        answer(PROFILES[0], libc::SYS_clone3, &[]),
        Answer::Errno(libc::ENOSYS)
    );
    assert_eq!(
        answer(PROFILES[0], libc::SYS_unshare, &[]),
        Answer::Errno(libc::EPERM)
    );
    assert_eq!(
        answer(PROFILES[0], libc::SYS_setns, &[]),
        Answer::Errno(libc::EPERM)
    );
}

#[test]
fn what_must_never_work_is_refused_on_every_profile() {
    let never = [
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_enter,
        libc::SYS_io_uring_register,
        libc::SYS_bpf,
        libc::SYS_perf_event_open,
        libc::SYS_userfaultfd,
        libc::SYS_kexec_load,
        libc::SYS_init_module,
        libc::SYS_add_key,
        libc::SYS_keyctl,
        libc::SYS_request_key,
        libc::SYS_memfd_create,
        libc::SYS_memfd_secret,
        libc::SYS_ptrace,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
        libc::SYS_pidfd_getfd,
        libc::SYS_mount,
        libc::SYS_umount2,
        libc::SYS_open_tree,
        libc::SYS_open_by_handle_at,
        libc::SYS_shmget,
        libc::SYS_msgget,
        libc::SYS_mq_open,
        libc::SYS_inotify_init1,
        libc::SYS_fanotify_init,
        libc::SYS_vmsplice,
        libc::SYS_io_setup,
    ];
    for profile in PROFILES {
        for number in never {
            assert_ne!(answer(profile, number, &[]), Answer::Allow, "{number}");
        }
    }
}

#[test]
fn memory_that_no_limit_counts_cannot_be_taken() {
    let huge = |flags: i32| [0, 1 << 21, 3, (flags | libc::MAP_ANONYMOUS) as u64];
    for profile in PROFILES {
        let map = |flags| answer(profile, libc::SYS_mmap, &huge(flags));
        assert_eq!(map(libc::MAP_PRIVATE), Answer::Allow);
        for size in [0, libc::MAP_HUGE_2MB, libc::MAP_HUGE_1GB] {
            let flags = libc::MAP_PRIVATE | libc::MAP_HUGETLB | size;
            assert_eq!(map(flags), Answer::Errno(libc::ENOMEM));
        }
        let advise = |advice: i32| answer(profile, libc::SYS_madvise, &[4096, 4096, advice as u64]);
        assert_eq!(advise(libc::MADV_DONTNEED), Answer::Allow);
        assert_eq!(advise(libc::MADV_MERGEABLE), Answer::Errno(libc::EINVAL));
        // The kernel reads only the lower half of the register.
        let wide = (1 << 32) | libc::MADV_MERGEABLE as u64;
        let answered = answer(profile, libc::SYS_madvise, &[4096, 4096, wide]);
        assert_eq!(answered, Answer::Errno(libc::EINVAL));
    }
}

#[test]
fn other_processes_are_asked_nothing_where_they_are_in_sight() {
    /// The processor clock of a process, as `clock_getcpuclockid` makes its number.
    fn clock_of(process: i32) -> u64 {
        ((!process << 3) | 2) as u32 as u64
    }
    for profile in PROFILES {
        let foreign = match profile.own_processes {
            true => Answer::Allow,
            false => Answer::Errno(libc::EINVAL),
        };
        for number in [
            libc::SYS_clock_gettime,
            libc::SYS_clock_getres,
            libc::SYS_clock_nanosleep,
        ] {
            for clock in [libc::CLOCK_MONOTONIC, libc::CLOCK_PROCESS_CPUTIME_ID] {
                assert_eq!(answer(profile, number, &[clock as u64]), Answer::Allow);
            }
            assert_eq!(answer(profile, number, &[clock_of(1)]), foreign);
        }
        for number in [libc::SYS_getpgid, libc::SYS_getsid] {
            assert_eq!(answer(profile, number, &[0]), Answer::Allow);
            let asked = answer(profile, number, &[1]);
            assert_eq!(asked == Answer::Allow, profile.own_processes);
        }
    }
}

#[test]
fn only_the_kernel_sends_the_signal_of_a_forbidden_call() {
    let refused = Answer::Errno(libc::EPERM);
    for profile in PROFILES {
        let sent = |signal: i32| {
            [
                answer(profile, libc::SYS_kill, &[1, signal as u64]),
                answer(profile, libc::SYS_tkill, &[1, signal as u64]),
                answer(profile, libc::SYS_tgkill, &[1, 1, signal as u64]),
            ]
        };
        assert_eq!(sent(libc::SIGSYS), [refused; 3]);
        let others = match profile.signals_contained {
            true => Answer::Allow,
            false => refused,
        };
        assert_eq!(sent(libc::SIGTERM), [others; 3]);
        let made = |flags: i32| answer(profile, libc::SYS_clone, &[flags as u64]);
        assert_eq!(made(libc::SIGCHLD), Answer::Allow);
        assert_eq!(made(libc::SIGSYS), refused);
        assert_eq!(made(libc::CLONE_VM | libc::SIGSYS), refused);
    }
}

#[test]
fn what_the_kernel_keeps_for_all_processes_of_a_user_cannot_be_taken() {
    let refused = Answer::Errno(libc::EPERM);
    for profile in PROFILES {
        for command in [libc::F_SETPIPE_SZ, libc::F_ADD_SEALS, libc::F_NOTIFY] {
            let arguments = [3, command as u64, 1 << 20];
            assert_eq!(answer(profile, libc::SYS_fcntl, &arguments), refused);
        }
        let arguments = [libc::PR_SET_VMA as u64, 0];
        assert_eq!(answer(profile, libc::SYS_prctl, &arguments), refused);
    }
}

#[test]
fn e70_no_request_for_a_lock_reaches_the_kernel() {
    for profile in PROFILES {
        for (command, expected) in [
            (libc::F_SETLK, Answer::Errno(0)),
            (libc::F_SETLKW, Answer::Errno(libc::ENOLCK)),
            (libc::F_OFD_SETLK, Answer::Errno(libc::ENOLCK)),
            (libc::F_OFD_SETLKW, Answer::Errno(libc::ENOLCK)),
            (libc::F_OFD_GETLK, Answer::Errno(libc::EPERM)),
            (libc::F_SETLEASE, Answer::Errno(libc::EPERM)),
        ] {
            // The kernel reads the command as a number of 32 bits.
            for upper in [0, 1 << 32, u64::MAX << 32] {
                let arguments = [3, command as u64 | upper, 0];
                let answer = answer(profile, libc::SYS_fcntl, &arguments);
                if upper == 0 {
                    assert_eq!(answer, expected, "{command}");
                }
                assert_ne!(answer, Answer::Allow, "{command} {upper:x}");
            }
        }
        let flock = answer(profile, libc::SYS_flock, &[3, 2]);
        assert_ne!(flock, Answer::Allow);
    }
}

#[test]
fn e19_additions_to_epoll_are_counted_where_the_user_is_shared() {
    for profile in PROFILES {
        for upper in [0, 1 << 32, u64::MAX << 32] {
            let answer = |operation: i32| {
                let arguments = [3, operation as u64 | upper, 4];
                answer(profile, libc::SYS_epoll_ctl, &arguments)
            };
            let adding = if profile.counts_watches {
                Answer::Tell
            } else {
                Answer::Allow
            };
            assert_eq!(answer(libc::EPOLL_CTL_ADD), adding);
            assert_eq!(answer(libc::EPOLL_CTL_DEL), Answer::Allow);
            assert_eq!(answer(libc::EPOLL_CTL_MOD), Answer::Allow);
        }
    }
}

#[test]
fn flushes_are_carried_out_only_where_files_are_in_memory() {
    let (done, refused) = (Answer::Errno(0), Answer::Errno(libc::EPERM));
    let invalid = Answer::Errno(libc::EINVAL);
    let (write, set) = (libc::O_WRONLY | libc::O_CREAT, libc::F_SETFL as u64);
    let truncating = write | libc::O_TRUNC | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let upper = 1 << 32 | libc::O_SYNC as u64;
    // The call, its arguments, and the answers in memory and on a disk.
    let table: [(i64, [u64; 3], Answer, Answer); 17] = [
        (libc::SYS_fsync, [3, 0, 0], Answer::Allow, done),
        (libc::SYS_fdatasync, [3, 0, 0], Answer::Allow, done),
        (libc::SYS_sync_file_range, [3, 0, 0], UNNAMED, done),
        (libc::SYS_syncfs, [3, 0, 0], refused, done),
        (libc::SYS_sync, [0, 0, 0], refused, refused),
        (libc::SYS_msync, [0, 0, 4], Answer::Allow, done),
        (libc::SYS_msync, [0, 0, 4 | 2], Answer::Allow, done),
        (libc::SYS_msync, [0, 0, 1], Answer::Allow, Answer::Allow),
        (
            libc::SYS_openat,
            [0, 0, write as u64],
            Answer::Allow,
            Answer::Allow,
        ),
        (
            libc::SYS_open,
            [0, truncating as u64, 0],
            Answer::Allow,
            Answer::Allow,
        ),
        (
            libc::SYS_openat,
            [0, 0, (write | libc::O_SYNC) as u64],
            Answer::Allow,
            refused,
        ),
        (
            libc::SYS_open,
            [0, (write | libc::O_DSYNC) as u64, 0],
            Answer::Allow,
            refused,
        ),
        (libc::SYS_openat, [0, 0, upper], Answer::Allow, refused),
        (
            libc::SYS_open,
            [0, libc::O_DIRECT as u64, 0],
            Answer::Allow,
            invalid,
        ),
        (
            libc::SYS_fcntl,
            [3, set, libc::O_NONBLOCK as u64],
            Answer::Allow,
            Answer::Allow,
        ),
        (
            libc::SYS_fcntl,
            [3, set, libc::O_DIRECT as u64],
            Answer::Allow,
            invalid,
        ),
        (libc::SYS_pwritev2, [3, 0, 0], UNNAMED, UNNAMED),
    ];
    for profile in PROFILES {
        for (number, arguments, in_memory, on_disk) in table {
            let expected = if profile.on_disk { on_disk } else { in_memory };
            let answer = answer(profile, number, &arguments);
            assert_eq!(answer, expected, "{number} {arguments:x?}");
        }
    }
}

#[test]
fn terminals_cannot_be_typed_into() {
    for command in [libc::TIOCSTI, libc::TIOCLINUX, libc::TIOCSCTTY] {
        for command in [command, command | 1 << 32] {
            let answer = answer(PROFILES[0], libc::SYS_ioctl, &[0, command]);
            assert_eq!(answer, Answer::Errno(libc::ENOTTY), "{command:x}");
        }
    }
}

#[test]
fn the_list_stays_short() {
    let allowed = policy::allowed_calls(PROFILES[0]);
    assert!(allowed <= 150, "{allowed} calls are allowed");
}
