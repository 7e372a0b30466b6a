//! What scripts may ask of the kernel.

use libc::{ENOSYS, ENOTSUP, ENOTTY, EPERM};

mod flushing;
mod sockets;
mod tables;

use tables::{ALLOWED, ANSWERED_ENOTSUP, ANSWERED_EPERM, DEADLY};

/// For whom the list is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Whether the script has a network namespace of its own, so that sockets reach no host.
    pub own_network: bool,
    /// Whether signals cannot leave the script's own processes (a pid namespace, or landlock).
    pub signals_contained: bool,
    /// Whether attempts to use a network are reported to the init instead of being answered.
    pub tells_network: bool,
    /// Whether the init counts the watches that are added to epoll, and refuses further ones.
    pub counts_watches: bool,
    /// Whether the script sees no files that are not its own but read-only ones. Otherwise it may
    /// set the times of every file that everybody may write, which Landlock does not guard.
    pub own_root: bool,
    /// Whether every file that the script's user owns is the script's. Otherwise it owns those of
    /// the service, whose modes Landlock does not guard either.
    pub own_files: bool,
    /// Whether the script's files are on a disk of the host, which others wait for as well. What
    /// would be flushed there is not, and is answered as if it were.
    pub on_disk: bool,
}

/// What happens to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is carried out.
    Allow,
    /// It fails with this error number.
    Errno(i32),
    /// The process is killed with SIGSYS.
    Kill,
    /// The process waits until the init, which is informed of it, has answered or ended it.
    Tell,
}

/// A test of one argument: `argument & mask == value`; the mask has 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The argument, from 0.
    pub argument: u32,
    /// The bits that count.
    pub mask: u64,
    /// What they must be.
    pub value: u64,
}

/// What happens to one system call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Always the same.
    Always(Answer),
    /// Allowed if every condition of one of the alternatives holds.
    AllowIf {
        /// The alternatives.
        any: Vec<Vec<Condition>>,
        /// What happens if none holds.
        otherwise: Answer,
    },
    /// As the first case of which every condition holds.
    Cases {
        /// The cases.
        cases: Vec<(Vec<Condition>, Answer)>,
        /// What happens if none holds.
        otherwise: Answer,
    },
}

/// One system call and its rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The call's number.
    pub number: i64,
    /// What happens to it.
    pub rule: Rule,
}

impl Profile {
    /// Whether the init is informed of any call.
    pub fn has_listener(self) -> bool {
        self.tells_network || self.counts_watches
    }
}

/// What happens to calls that the policy does not name.
pub const UNNAMED: Answer = Answer::Errno(ENOSYS);

const ALL_BITS: u64 = u64::MAX;

/// Every namespace flag that `clone` takes.
pub const NAMESPACE_FLAGS: u64 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u32 as u64;

/// The whole policy for a profile; no call is named twice.
pub fn policy(profile: Profile) -> Vec<Entry> {
    let always = |numbers: &[i64], answer: Answer| -> Vec<Entry> {
        numbers
            .iter()
            .map(|&number| Entry {
                number,
                rule: Rule::Always(answer),
            })
            .collect()
    };
    let mut entries = always(ALLOWED, Answer::Allow);
    entries.extend(always(ANSWERED_EPERM, Answer::Errno(EPERM)));
    entries.extend(always(ANSWERED_ENOTSUP, Answer::Errno(ENOTSUP)));
    entries.extend(always(DEADLY, Answer::Kill));
    entries.extend(conditional());
    entries.extend(flushing::entries(profile));
    entries.push(flushing::commands(profile));
    entries.extend(sockets::entries(profile));
    entries.extend(file_attributes(profile));
    entries.push(watches(profile));
    let signals = if profile.signals_contained {
        Answer::Allow
    } else {
        Answer::Errno(EPERM)
    };
    entries.extend(always(
        &[libc::SYS_kill, libc::SYS_tkill, libc::SYS_tgkill],
        signals,
    ));
    entries
}

/// How many calls a profile allows, always or with certain arguments.
pub fn allowed_calls(profile: Profile) -> usize {
    policy(profile)
        .iter()
        .filter(|entry| !matches!(entry.rule, Rule::Always(Answer::Errno(_) | Answer::Kill)))
        .count()
}

/// Calls that are allowed with certain arguments only, on every profile.
fn conditional() -> Vec<Entry> {
    let one_of = |number: i64, argument: u32, values: &[u64], otherwise: i32| Entry {
        number,
        rule: Rule::AllowIf {
            any: values
                .iter()
                .map(|&value| {
                    vec![Condition {
                        argument,
                        mask: ALL_BITS,
                        value,
                    }]
                })
                .collect(),
            otherwise: Answer::Errno(otherwise),
        },
    };
    let masked = |number: i64, argument: u32, mask: u64, value: u64| Entry {
        number,
        rule: Rule::AllowIf {
            any: vec![vec![Condition {
                argument,
                mask,
                value,
            }]],
            otherwise: Answer::Errno(EPERM),
        },
    };
    vec![
        // A thread or a process, but no namespace: clone3 hides its flags behind a pointer and is
        // answered ENOSYS, upon which the C libraries use this one.
        masked(libc::SYS_clone, 0, NAMESPACE_FLAGS, 0),
        // Asking terminals and pipes; everything else, above all TIOCSTI, is answered as by a file.
        one_of(libc::SYS_ioctl, 1, tables::IOCTLS, ENOTTY),
        one_of(libc::SYS_prctl, 0, tables::PRCTLS, EPERM),
        one_of(libc::SYS_arch_prctl, 0, tables::ARCH_PRCTLS, EPERM),
        own_limits(),
        one_of(libc::SYS_sched_getaffinity, 0, &[0], EPERM),
        // Private barriers within the process; the global ones disturb the whole machine.
        one_of(libc::SYS_membarrier, 0, tables::MEMBARRIERS, EPERM),
        // Pipes with a name, but no devices.
        masked(libc::SYS_mknodat, 2, 0o170_000, 0o010_000),
    ]
}

/// Watches by epoll, which the kernel counts by user. The same descriptors can be added to many, and
/// many descriptors lead to one file, so that the limit on open files bounds them at nothing useful.
fn watches(profile: Profile) -> Entry {
    // The kernel takes the operation as a 32-bit number.
    let adds = Condition {
        argument: 1,
        mask: u64::from(u32::MAX),
        value: libc::EPOLL_CTL_ADD as u64,
    };
    let counted = profile.counts_watches.then(|| (vec![adds], Answer::Tell));
    Entry {
        number: libc::SYS_epoll_ctl,
        rule: Rule::Cases {
            cases: counted.into_iter().collect(),
            otherwise: Answer::Allow,
        },
    }
}

/// Modes and times of files. Without a root of its own a script reaches more than its own by a path;
/// as the service's own user also by a descriptor, as that of a program that it may only read.
fn file_attributes(profile: Profile) -> Vec<Entry> {
    let refused = Answer::Errno(EPERM);
    let always = |number: i64, allowed: bool| Entry {
        number,
        rule: Rule::Always(if allowed { Answer::Allow } else { refused }),
    };
    let no_path = Condition {
        argument: 1,
        mask: ALL_BITS,
        value: 0,
    };
    let times = if profile.own_files && !profile.own_root {
        Entry {
            number: libc::SYS_utimensat,
            rule: Rule::AllowIf {
                any: vec![vec![no_path]],
                otherwise: refused,
            },
        }
    } else {
        always(libc::SYS_utimensat, profile.own_root)
    };
    vec![
        always(libc::SYS_chmod, profile.own_files),
        always(libc::SYS_fchmod, profile.own_files),
        always(libc::SYS_fchmodat, profile.own_files),
        times,
    ]
}

/// Reading one's own limits, and lowering them; raising them is refused by the kernel. The limit on
/// core files stays: at zero the kernel would hand a crash to the host's handler.
fn own_limits() -> Entry {
    /// How many kinds of limits the kernel has.
    const RESOURCES: u64 = 16;
    let is = |argument: u32, value: u64| Condition {
        argument,
        mask: ALL_BITS,
        value,
    };
    let resources = (0..RESOURCES)
        .filter(|&resource| resource != u64::from(libc::RLIMIT_CORE))
        .map(|resource| vec![is(0, 0), is(1, resource)]);
    let reading = vec![is(0, 0), is(2, 0)];
    Entry {
        number: libc::SYS_prlimit64,
        rule: Rule::AllowIf {
            any: std::iter::once(reading).chain(resources).collect(),
            otherwise: Answer::Errno(EPERM),
        },
    }
}
