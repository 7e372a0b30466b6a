//! The system calls that scripts may make.

use libc::{EINVAL, ENOMEM, ENOSYS, ENOTSUP, ENOTTY, EPERM};

mod flushing;
mod sockets;
mod tables;

use tables::{ALLOWED, ANSWERED_ENOTSUP, ANSWERED_EPERM, DEADLY};

/// The properties of a script's confinement on which the policy depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Whether the script has a network namespace of its own, so that sockets reach no host.
    pub own_network: bool,
    /// Whether the script sees no processes but its own (a pid namespace).
    pub own_processes: bool,
    /// Whether signals cannot leave the script's own processes (a pid namespace, or landlock).
    pub signals_contained: bool,
    /// Whether attempts to use a network are reported to the init instead of being answered.
    pub reports_network: bool,
    /// Whether the init counts the watches that are added to epoll, and refuses further ones.
    pub counts_watches: bool,
    /// Whether the only files of others that the script sees are read-only. Otherwise it may set
    /// the times of every file that any user may write, which Landlock does not guard.
    pub own_root: bool,
    /// Whether the script owns every file that its user owns. Otherwise its user also owns the
    /// files of the service, whose modes Landlock does not guard either.
    pub own_files: bool,
    /// Whether the script's files are on a disk of the host, for which other processes wait as
    /// well. Flushes there are answered as done without being carried out.
    pub on_disk: bool,
}

/// The answer to a call.
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
    /// The bits to test.
    pub mask: u64,
    /// Their required value.
    pub value: u64,
}

impl Condition {
    /// Tests that the whole argument has this value.
    fn is(argument: u32, value: u64) -> Self {
        Self::masked(argument, u64::MAX, value)
    }

    /// Tests that every bit of `flag` is set.
    fn has(argument: u32, flag: u64) -> Self {
        Self::masked(argument, flag, flag)
    }

    fn masked(argument: u32, mask: u64, value: u64) -> Self {
        Self {
            argument,
            mask,
            value,
        }
    }
}

/// One system call and its answer: the answer of the first case whose conditions all hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The call's number.
    pub number: i64,
    /// The cases.
    pub cases: Vec<(Vec<Condition>, Answer)>,
    /// The answer if no case holds.
    pub otherwise: Answer,
}

impl Entry {
    fn always(number: i64, answer: Answer) -> Self {
        Self {
            number,
            cases: Vec::new(),
            otherwise: answer,
        }
    }

    /// Allows the call if every condition of one of the alternatives holds.
    fn allowed_if(number: i64, any: impl IntoIterator<Item = Vec<Condition>>, errno: i32) -> Self {
        let any = any
            .into_iter()
            .map(|conditions| (conditions, Answer::Allow));
        Self {
            number,
            cases: any.collect(),
            otherwise: Answer::Errno(errno),
        }
    }

    /// Allows the call, except in these cases.
    fn allowed_unless(number: i64, cases: Vec<(Vec<Condition>, Answer)>) -> Self {
        Self {
            number,
            cases,
            otherwise: Answer::Allow,
        }
    }

    /// Allows the call, or refuses it with EPERM.
    fn allowed(number: i64, allowed: bool) -> Self {
        let refused = Answer::Errno(EPERM);
        Self::always(number, if allowed { Answer::Allow } else { refused })
    }
}

impl Profile {
    /// Whether the init is informed of any call.
    pub fn has_listener(self) -> bool {
        self.reports_network || self.counts_watches
    }
}

/// The answer to calls that the policy does not name.
pub const UNNAMED: Answer = Answer::Errno(ENOSYS);

/// The low half of a register: all that the kernel reads where it expects a 32-bit number.
const LOWER_HALF: u64 = u32::MAX as u64;

/// Every namespace flag that `clone` accepts.
pub const NAMESPACE_FLAGS: u64 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u32 as u64;

/// The whole policy for a profile; no call is named twice.
pub fn policy(profile: Profile) -> Vec<Entry> {
    let tables = [
        (ALLOWED, Answer::Allow),
        (ANSWERED_EPERM, Answer::Errno(EPERM)),
        (ANSWERED_ENOTSUP, Answer::Errno(ENOTSUP)),
        (DEADLY, Answer::Kill),
    ];
    let unconditional = tables.into_iter().flat_map(|(numbers, answer)| {
        let numbers = numbers.iter();
        numbers.map(move |&number| Entry::always(number, answer))
    });
    let mut entries: Vec<Entry> = unconditional.collect();
    entries.extend(conditional());
    entries.extend(memory());
    entries.extend(processes(profile));
    entries.extend(flushing::entries(profile));
    entries.push(flushing::commands(profile));
    entries.extend(sockets::entries(profile));
    entries.extend(file_attributes(profile));
    entries.push(watches(profile));
    entries.extend(signals(profile));
    entries
}

/// The number of calls that a profile allows, always or with certain arguments.
pub fn allowed_calls(profile: Profile) -> usize {
    let refused = |entry: &&Entry| {
        entry.cases.is_empty() && matches!(entry.otherwise, Answer::Errno(_) | Answer::Kill)
    };
    let entries = policy(profile);
    entries.len() - entries.iter().filter(refused).count()
}

/// Calls that are allowed with certain arguments only, on every profile.
fn conditional() -> Vec<Entry> {
    let one_of = |number: i64, argument: u32, values: &[u64], errno: i32| {
        let is = |&value: &u64| vec![Condition::is(argument, value)];
        Entry::allowed_if(number, values.iter().map(is), errno)
    };
    let masked = |number: i64, argument: u32, mask: u64, value: u64| {
        let only = Condition::masked(argument, mask, value);
        Entry::allowed_if(number, [vec![only]], EPERM)
    };
    vec![
        threads_and_processes(),
        // Queries of terminals and pipes; any other request, above all TIOCSTI, is answered as by a
        // file.
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

/// A thread or a process, but no namespace: clone3 hides its flags behind a pointer and is answered
/// ENOSYS, upon which the C libraries use this call. A child whose end would send the signal of
/// [`signals`] is refused, too.
fn threads_and_processes() -> Entry {
    let exit_signal = Condition::masked(0, libc::CSIGNAL as u64, libc::SIGSYS as u64);
    let no_namespace = Condition::masked(0, NAMESPACE_FLAGS, 0);
    Entry {
        number: libc::SYS_clone,
        cases: vec![
            (vec![exit_signal], Answer::Errno(EPERM)),
            (vec![no_namespace], Answer::Allow),
        ],
        otherwise: Answer::Errno(EPERM),
    }
}

/// Signals to the script's own processes, except the signal by which the kernel ends a process that
/// makes a forbidden call: it is evidence of such a call.
fn signals(profile: Profile) -> [Entry; 3] {
    let calls = [
        (libc::SYS_kill, 1),
        (libc::SYS_tkill, 1),
        (libc::SYS_tgkill, 2),
    ];
    calls.map(|(number, argument)| {
        let kernels = Condition::masked(argument, LOWER_HALF, libc::SIGSYS as u64);
        let refused = (vec![kernels], Answer::Errno(EPERM));
        match profile.signals_contained {
            true => Entry::allowed_unless(number, vec![refused]),
            false => Entry::allowed(number, false),
        }
    })
}

/// Memory, except two kinds that no limit of the script counts. Huge pages are a pool of the whole
/// host. Pages merged with equal pages of other processes reveal their content by the time of a
/// write.
fn memory() -> [Entry; 2] {
    let huge = Condition::has(3, libc::MAP_HUGETLB as u64);
    let merged = Condition::masked(2, LOWER_HALF, libc::MADV_MERGEABLE as u64);
    [
        // The answers of a kernel that supports neither.
        Entry::allowed_unless(libc::SYS_mmap, vec![(vec![huge], Answer::Errno(ENOMEM))]),
        Entry::allowed_unless(
            libc::SYS_madvise,
            vec![(vec![merged], Answer::Errno(EINVAL))],
        ),
    ]
}

/// Queries that name a process or its clock. A script that sees foreign processes keeps the queries
/// about itself and about the clocks that all processes share.
fn processes(profile: Profile) -> Vec<Entry> {
    /// The highest number of a clock that belongs to no process.
    const LAST_SHARED_CLOCK: u64 = libc::CLOCK_TAI as u64;
    /// The number by which a process names itself.
    const ITSELF: u64 = 0;
    let asked = |number, last: u64, errno| {
        let shared = (0..=last).map(|value| vec![Condition::masked(0, LOWER_HALF, value)]);
        match profile.own_processes {
            true => Entry::always(number, Answer::Allow),
            false => Entry::allowed_if(number, shared, errno),
        }
    };
    let of_clocks = [
        libc::SYS_clock_gettime,
        libc::SYS_clock_getres,
        libc::SYS_clock_nanosleep,
    ];
    let of_processes = [libc::SYS_getpgid, libc::SYS_getsid];
    let mut entries = vec![Entry::allowed(libc::SYS_capget, profile.own_processes)];
    entries.extend(of_clocks.map(|number| asked(number, LAST_SHARED_CLOCK, EINVAL)));
    entries.extend(of_processes.map(|number| asked(number, ITSELF, EPERM)));
    entries
}

/// Watches by epoll, which the kernel counts by user. One descriptor can be added to many epolls,
/// and many descriptors lead to one file, so that the limit on open files is no useful bound.
fn watches(profile: Profile) -> Entry {
    let adds = Condition::masked(1, LOWER_HALF, libc::EPOLL_CTL_ADD as u64);
    let counted = profile.counts_watches.then(|| (vec![adds], Answer::Tell));
    Entry::allowed_unless(libc::SYS_epoll_ctl, counted.into_iter().collect())
}

/// Modes and times of files. Without a root of its own a script reaches files of others: by a path,
/// and by a descriptor the host's devices, to which any user may write.
fn file_attributes(profile: Profile) -> [Entry; 4] {
    let times = Entry::allowed(libc::SYS_utimensat, profile.own_root);
    let modes = [libc::SYS_chmod, libc::SYS_fchmod, libc::SYS_fchmodat];
    let [path, descriptor, place] = modes.map(|number| Entry::allowed(number, profile.own_files));
    [path, descriptor, place, times]
}

/// Reading its own limits, and lowering them; the kernel refuses raising them. The limit on core
/// files stays: at zero the kernel would pass a crash to the host's handler.
fn own_limits() -> Entry {
    /// The number of kinds of limits in the kernel.
    const RESOURCES: u64 = 16;
    let is = Condition::is;
    let resources = (0..RESOURCES)
        .filter(|&resource| resource != u64::from(libc::RLIMIT_CORE))
        .map(|resource| vec![is(0, 0), is(1, resource)]);
    let reading = vec![is(0, 0), is(2, 0)];
    Entry::allowed_if(
        libc::SYS_prlimit64,
        std::iter::once(reading).chain(resources),
        EPERM,
    )
}
